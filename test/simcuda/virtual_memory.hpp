// SPDX-License-Identifier: BSD-3-Clause
// Memory of cuMemCreate, for tests.
#pragma once

#include "test_support.hpp"

CUmemAllocationProp device_properties(CUdevice device, bool exportable);

// The unit of sizes, of all devices.
std::size_t granularity();

// A reserved address range with physical memory in it, which device 0 may access, from its begin
// on; what is left of it is not mapped. All goes at the end.
class VirtualMemory {
public:
    explicit VirtualMemory(std::size_t reserved_bytes);
    ~VirtualMemory();
    VirtualMemory(const VirtualMemory &) = delete;

    // Maps new memory behind what is mapped, and gives its handle back.
    void add(std::size_t bytes, bool exportable = false);
    // Maps memory that a handle is for, and gives the handle back.
    void add(std::size_t bytes, CUmemGenericAllocationHandle handle);

    void unmap_all();

    CUdeviceptr address() const { return address_; }

private:
    struct Piece {
        CUdeviceptr address;
        std::size_t bytes;
    };

    CUdeviceptr address_ = 0;
    const std::size_t reserved_bytes_;
    std::vector<Piece> pieces_;
};

CUmemGenericAllocationHandle create_memory(std::size_t bytes, bool exportable);

CUresult import_memory(CUmemGenericAllocationHandle *handle, int file);
CUresult export_memory(int *file, CUmemGenericAllocationHandle handle);

CUresult allow_access(CUdeviceptr address, std::size_t bytes, CUdevice device);
