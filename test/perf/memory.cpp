// SPDX-License-Identifier: BSD-3-Clause
#include "memory.hpp"

#include "virtual_memory.hpp"

#include "../mpi/pattern.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpushm::perf {
namespace {

constexpr size_t kPage = 4096;

/** Ordinary memory to prepare and check contents in. */
unsigned char *scratch(size_t bytes) {
    static std::vector<unsigned char> memory;
    if (memory.size() < bytes) {
        memory.resize(bytes);
    }
    return memory.data();
}

}  // namespace

Memory::Memory(const Driver *driver, MemoryKind kind, size_t bytes)
    : driver_(driver), kind_(kind), bytes_(bytes) {
    if (driver == nullptr && kind != MemoryKind::host) {
        throw std::runtime_error("this kind of memory needs a CUDA driver");
    }
    allocate();
    if (address_ == nullptr) {
        throw std::runtime_error("no memory for " + std::to_string(bytes) + " bytes");
    }
}

Memory::Memory(const Driver *driver, char *imported, size_t bytes)
    : driver_(driver), kind_(MemoryKind::imported), bytes_(bytes), address_(imported) {}

void Memory::allocate() {
    CUdeviceptr device = 0;
    void *host = nullptr;
    switch (kind_) {
        case MemoryKind::host:
            host = std::malloc(bytes_);
            break;
        case MemoryKind::pinned:
            driver_->require(driver_->cuMemHostAlloc(&host, bytes_, CU_MEMHOSTALLOC_PORTABLE),
                             "cuMemHostAlloc");
            break;
        case MemoryKind::registered:
            host = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            if (host == MAP_FAILED) {
                host = nullptr;
                break;
            }
            driver_->require(driver_->cuMemHostRegister(host, bytes_, CU_MEMHOSTREGISTER_PORTABLE),
                             "cuMemHostRegister");
            break;
        case MemoryKind::device:
            driver_->require(driver_->cuMemAlloc(&device, bytes_), "cuMemAlloc");
            break;
        case MemoryKind::pool:
            if (driver_->cuMemAllocAsync == nullptr) {
                throw std::runtime_error("the CUDA driver has no memory pools");
            }
            driver_->require(driver_->cuMemAllocAsync(&device, bytes_, nullptr), "cuMemAllocAsync");
            driver_->require(driver_->cuStreamSynchronize(nullptr), "cuStreamSynchronize");
            break;
        case MemoryKind::vmm:
        case MemoryKind::unmappable:
            device = allocate_virtual_memory(*driver_, bytes_, kind_ == MemoryKind::vmm);
            break;
        case MemoryKind::managed:
            driver_->require(driver_->cuMemAllocManaged(&device, bytes_, CU_MEM_ATTACH_GLOBAL),
                             "cuMemAllocManaged");
            break;
        case MemoryKind::imported:
            break;  // is there already
    }
    address_ = static_cast<char *>(device != 0 ? reinterpret_cast<void *>(device) : host);
}

Memory::~Memory() {
    switch (kind_) {
        case MemoryKind::host:
            std::free(address_);
            break;
        case MemoryKind::pinned:
            driver_->cuMemFreeHost(address_);
            break;
        case MemoryKind::registered:
            driver_->cuMemHostUnregister(address_);
            munmap(address_, bytes_);
            break;
        case MemoryKind::device:
        case MemoryKind::managed:
            driver_->cuMemFree(device_pointer(address_));
            break;
        case MemoryKind::pool:
            driver_->cuMemFreeAsync(device_pointer(address_), nullptr);
            break;
        case MemoryKind::vmm:
        case MemoryKind::unmappable:
            free_virtual_memory(*driver_, device_pointer(address_), bytes_);
            break;
        case MemoryKind::imported:
            break;
    }
}

void Memory::fill(size_t first, size_t bytes, uint64_t seed) {
    unsigned char *content = scratch(bytes);
    mpi_test::fill_pattern(content, bytes, seed);
    write(first, content, bytes);
}

void Memory::clear(size_t first, size_t bytes) {
    unsigned char *content = scratch(bytes);
    std::memset(content, 0, bytes);
    write(first, content, bytes);
}

void Memory::check(size_t first, size_t bytes, uint64_t seed, size_t at) const {
    const unsigned char *content = read(first, bytes);
    if (const auto wrong = mpi_test::find_pattern_mismatch(content, bytes, seed, at)) {
        throw std::runtime_error("WRONG DATA at byte " + std::to_string(wrong->position) + " of " +
                                 std::to_string(bytes));
    }
}

void Memory::place_on_cpu(size_t first, size_t bytes) {
    volatile char *byte = address_ + first;
    for (size_t i = 0; i < bytes; i += kPage) {
        byte[i] = byte[i];
    }
    byte[bytes - 1] = byte[bytes - 1];
}

void Memory::place_on_gpu(size_t first, size_t bytes) {
    const CUdeviceptr begin = device_pointer(address_ + first);
    if (driver_->cuMemPrefetchAsync == nullptr) {
        std::memcpy(scratch(bytes), address_ + first, bytes);
        driver_->require(driver_->cuMemcpyHtoD(begin, scratch(bytes), bytes), "cuMemcpyHtoD");
    } else {
        CUdevice device;
        driver_->require(driver_->cuCtxGetDevice(&device), "cuCtxGetDevice");
#if CUDA_VERSION >= 13000
        const CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, device};
        driver_->require(driver_->cuMemPrefetchAsync(begin, bytes, where, 0, nullptr),
                         "cuMemPrefetchAsync");
#else
        driver_->require(driver_->cuMemPrefetchAsync(begin, bytes, device, nullptr),
                         "cuMemPrefetchAsync");
#endif
    }
    driver_->require(driver_->cuCtxSynchronize(), "cuCtxSynchronize");
}

void Memory::write(size_t first, const unsigned char *from, size_t bytes) {
    if (!is_device_memory(kind_)) {
        std::memcpy(address_ + first, from, bytes);
        return;
    }
    driver_->require(driver_->cuMemcpyHtoD(device_pointer(address_ + first), from, bytes),
                     "cuMemcpyHtoD");
    // From pageable memory the call may return before the data is in device memory (CUDA driver
    // API, "API synchronization behavior").
    driver_->require(driver_->cuCtxSynchronize(), "cuCtxSynchronize");
}

const unsigned char *Memory::read(size_t first, size_t bytes) const {
    if (!is_device_memory(kind_)) {
        return reinterpret_cast<const unsigned char *>(address_ + first);
    }
    unsigned char *content = scratch(bytes);
    driver_->require(driver_->cuMemcpyDtoH(content, device_pointer(address_ + first), bytes),
                     "cuMemcpyDtoH");
    return content;
}

}  // namespace gpushm::perf
