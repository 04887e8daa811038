// SPDX-License-Identifier: BSD-3-Clause
// Memory of cuMemCreate, for tests.
#include "virtual_memory.hpp"

CUmemAllocationProp device_properties(CUdevice device, bool exportable) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    properties.requestedHandleTypes =
        exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    return properties;
}

std::size_t granularity() {
    const CUmemAllocationProp properties = device_properties(0, true);
    std::size_t bytes = 0;
    EXPECT_CU(cu().cuMemGetAllocationGranularity(&bytes, &properties,
                                                 CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    return bytes;
}

VirtualMemory::VirtualMemory(std::size_t reserved_bytes) : reserved_bytes_(reserved_bytes) {
    EXPECT_CU(cu().cuMemAddressReserve(&address_, reserved_bytes, 0, 0, 0));
}

VirtualMemory::~VirtualMemory() {
    unmap_all();
    EXPECT_CU(cu().cuMemAddressFree(address_, reserved_bytes_));
}

void VirtualMemory::add(std::size_t bytes, bool exportable) {
    add(bytes, create_memory(bytes, exportable));
}

void VirtualMemory::add(std::size_t bytes, CUmemGenericAllocationHandle handle) {
    const CUdeviceptr next =
        pieces_.empty() ? address_ : pieces_.back().address + pieces_.back().bytes;
    EXPECT_CU(cu().cuMemMap(next, bytes, 0, handle, 0));
    EXPECT_CU(allow_access(next, bytes, 0));
    EXPECT_CU(cu().cuMemRelease(handle));
    pieces_.push_back({next, bytes});
}

void VirtualMemory::unmap_all() {
    for (const Piece &piece : pieces_) {
        EXPECT_CU(cu().cuMemUnmap(piece.address, piece.bytes));
    }
    pieces_.clear();
}

CUmemGenericAllocationHandle create_memory(std::size_t bytes, bool exportable) {
    const CUmemAllocationProp properties = device_properties(0, exportable);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_CU(cu().cuMemCreate(&handle, bytes, &properties, 0));
    return handle;
}

CUresult import_memory(CUmemGenericAllocationHandle *handle, int file) {
    return cu().cuMemImportFromShareableHandle(
        handle, reinterpret_cast<void *>(static_cast<std::intptr_t>(file)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

CUresult export_memory(int *file, CUmemGenericAllocationHandle handle) {
    return cu().cuMemExportToShareableHandle(file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                             0);
}

CUresult allow_access(CUdeviceptr address, std::size_t bytes, CUdevice device) {
    CUmemAccessDesc description{};
    description.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    description.location.id = device;
    description.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return cu().cuMemSetAccess(address, bytes, &description, 1);
}
