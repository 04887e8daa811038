// SPDX-License-Identifier: BSD-3-Clause
// The devices that this process sees.
#pragma once

#include "driver.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace simcuda {

class DeviceHeap;
class MemoryPool;
struct Context;

struct Device {
    CUdevice ordinal;                    // as this process numbers them
    unsigned physical;                   // as the machine numbers them: the same in all processes
    CUuuid uuid;                         // made from `physical`
    Context *primary_context = nullptr;  // lives as long as the process, see Context::alive
    unsigned primary_retain_count = 0;
    unsigned primary_flags = 0;
    std::unique_ptr<DeviceHeap> heap;
    std::unique_ptr<MemoryPool> default_pool;

    std::string name() const;
    int pci_bus() const { return 0x1b + 0x10 * static_cast<int>(physical); }
};

// Makes the devices that SIMCUDA_DEVICES and CUDA_VISIBLE_DEVICES leave; false if that is none.
// Later calls change nothing.
bool find_devices(Lock &lock);

// All of the following are valid after cuInit.
const std::vector<std::unique_ptr<Device>> &devices();

// Null if there is no such device.
Device *find_device(CUdevice ordinal);

// By its number in the machine; also one that CUDA_VISIBLE_DEVICES hides, which has an ordinal of
// CU_DEVICE_INVALID, no memory of this process and no contexts. Null if there is no such device.
Device *find_physical_device(unsigned physical);

// Whether one device reaches the memory of another one, or of itself.
bool can_access(const Device &from, const Device &to);

}  // namespace simcuda
