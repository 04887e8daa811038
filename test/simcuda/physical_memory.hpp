// SPDX-License-Identifier: BSD-3-Clause
// Device memory that has a handle and no address yet: cuMemCreate.
//
// Each is a memory file of its own; its last page, which is never mapped, says what it is, so that
// another process can tell from the descriptor alone.
#pragma once

#include "device.hpp"

#include <memory>

namespace simcuda {

class PhysicalMemory {
public:
    // Null if the device has not so much left. `bytes` is a multiple of kPageBytes.
    static std::shared_ptr<PhysicalMemory> create(Device &device, std::size_t bytes,
                                                  unsigned handle_types);

    // The memory behind a descriptor that export_file gave, here or in another process, which the
    // caller keeps; null if it is no such descriptor.
    static std::shared_ptr<PhysicalMemory> import(int descriptor);

    ~PhysicalMemory();
    PhysicalMemory(const PhysicalMemory &) = delete;
    PhysicalMemory &operator=(const PhysicalMemory &) = delete;

    // A new descriptor, which the caller closes, or -1. The memory counts as used as long as a copy
    // of it is open somewhere.
    int export_file() const;

    int file() const { return file_; }
    Device &device() const { return device_; }  // may be hidden from this process
    std::size_t bytes() const { return bytes_; }
    unsigned handle_types() const { return handle_types_; }  // as cuMemCreate was asked for

private:
    PhysicalMemory(int file, Device &device, std::size_t bytes, unsigned handle_types, bool owned);

    const int file_;
    Device &device_;
    const std::size_t bytes_;
    const unsigned handle_types_;
    const bool owned_;  // it counts in the device's heap
};

// The handles of this process. A handle keeps its memory while it is referenced; mappings keep the
// memory too.
class MemoryHandles {
public:
    // A new handle with one reference.
    static CUmemGenericAllocationHandle add(std::shared_ptr<PhysicalMemory> memory);

    // Null if there is no such handle.
    static std::shared_ptr<PhysicalMemory> find(CUmemGenericAllocationHandle handle);

    // One reference more to a handle, also after its last one went, for memory that it was for.
    static void retain(CUmemGenericAllocationHandle handle, std::shared_ptr<PhysicalMemory> memory);

    // False if there is no such handle.
    static bool release(CUmemGenericAllocationHandle handle);
};

}  // namespace simcuda
