// SPDX-License-Identifier: BSD-3-Clause
#include "virtual_memory.hpp"

#include <stdexcept>

namespace gpushm::perf {
namespace {

CUmemAllocationProp properties_of(const Driver &driver, bool exportable) {
    CUdevice device = 0;
    driver.require(driver.cuCtxGetDevice(&device), "cuCtxGetDevice");
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    properties.requestedHandleTypes =
        exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
    return properties;
}

size_t whole_units(const Driver &driver, const CUmemAllocationProp &properties, size_t bytes) {
    size_t unit = 1;
    driver.require(
        driver.cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity");
    return (bytes + unit - 1) / unit * unit;
}

}  // namespace

CUdeviceptr allocate_virtual_memory(const Driver &driver, size_t bytes, bool exportable) {
    if (driver.cuMemCreate == nullptr || driver.cuMemMap == nullptr) {
        throw std::runtime_error("the CUDA driver has no virtual memory management");
    }
    const CUmemAllocationProp properties = properties_of(driver, exportable);
    const size_t length = whole_units(driver, properties, bytes);
    CUmemGenericAllocationHandle handle = 0;
    driver.require(driver.cuMemCreate(&handle, length, &properties, 0), "cuMemCreate");
    CUdeviceptr address = 0;
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    driver.require(driver.cuMemAddressReserve(&address, length, 0, 0, 0), "cuMemAddressReserve");
    driver.require(driver.cuMemMap(address, length, 0, handle, 0), "cuMemMap");
    driver.require(driver.cuMemSetAccess(address, length, &access, 1), "cuMemSetAccess");
    // The mapping keeps the memory.
    driver.require(driver.cuMemRelease(handle), "cuMemRelease");
    return address;
}

void free_virtual_memory(const Driver &driver, CUdeviceptr address, size_t bytes) {
    const size_t length = whole_units(driver, properties_of(driver, false), bytes);
    driver.cuMemUnmap(address, length);
    driver.cuMemAddressFree(address, length);
}

}  // namespace gpushm::perf
