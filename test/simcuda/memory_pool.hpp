// SPDX-License-Identifier: BSD-3-Clause
// Memory that is allocated and freed in the order of a stream.
#pragma once

#include "device.hpp"

namespace simcuda {

// The default pool of a device, the only one it has.
class MemoryPool {
public:
    explicit MemoryPool(Device &device) : device_(device) {}

    Device &device() const { return device_; }
    CUmemoryPool handle() { return reinterpret_cast<CUmemoryPool>(this); }

    // Null if `handle` is no pool.
    static MemoryPool *find(CUmemoryPool handle);

private:
    Device &device_;
};

}  // namespace simcuda
