// SPDX-License-Identifier: BSD-3-Clause
// Where managed memory is.
#include "residency.hpp"

#include "call.hpp"
#include "context.hpp"
#include "device.hpp"
#include "raw_system_call.hpp"
#include "simcuda.h"
#include "stream.hpp"

#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace simcuda {

namespace {

constexpr std::uintptr_t kCpuPageBytes = 4096;
constexpr std::size_t kEntriesAtOnce = 4096;

std::atomic<unsigned long> migrated_pages{0};

// The pages that have a byte of a range.
struct Pages {
    std::uintptr_t begin;
    std::size_t bytes;

    Pages(std::uintptr_t address, std::size_t length)
        : begin(address / kCpuPageBytes * kCpuPageBytes),
          bytes((address + length - begin + kCpuPageBytes - 1) / kCpuPageBytes * kCpuPageBytes) {}
};

// Documentation/admin-guide/mm/pagemap.rst of Linux: 8 bytes a page, bit 63 set if it is present.
unsigned long count_present(const Pages &pages) {
    static const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    std::vector<std::uint64_t> entries(kEntriesAtOnce);
    const std::size_t first = pages.begin / kCpuPageBytes;
    const std::size_t count = pages.bytes / kCpuPageBytes;
    unsigned long present = 0;
    for (std::size_t done = 0; done < count;) {
        const std::size_t wanted = std::min(count - done, kEntriesAtOnce) * sizeof(entries[0]);
        const ssize_t found = pread(pagemap, entries.data(), wanted,
                                    static_cast<off_t>((first + done) * sizeof(entries[0])));
        if (found <= 0) {
            return present;
        }
        const std::size_t read = static_cast<std::size_t>(found) / sizeof(entries[0]);
        for (std::size_t i = 0; i < read; ++i) {
            present += entries[i] >> 63;
        }
        done += read;
    }
    return present;
}

// Not by the C library's madvise, as mapping.hpp says of mmap.
void advise(const Pages &pages, int advice) {
    raw_system_call(SYS_madvise, static_cast<long>(pages.begin), static_cast<long>(pages.bytes),
                    advice);
}

CUresult prefetch(Call &call, CUdeviceptr address, std::size_t bytes, CUdevice to,
                  CUstream handle) {
    return call.given(address, bytes, to, handle)
        .with_context([&](Lock &lock, Context &context) -> CUresult {
            std::shared_ptr<Stream> stream;
            const auto allocation = Allocations::get().find(address);
            const CUresult result = find_usable_stream(handle, context, &stream);
            if (result != CUDA_SUCCESS) {
                return result;
            }
            if (to != CU_DEVICE_CPU && find_device(to) == nullptr) {
                return CUDA_ERROR_INVALID_DEVICE;
            }
            if (bytes == 0 || allocation == nullptr || !allocation->contains(address, bytes) ||
                allocation->kind != Allocation::Kind::managed) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            Operation operation;
            operation.duration = Engine::get().transfer_time(bytes);
            operation.run = [=](Lock &) -> CUresult {
                if (!allocation->live) {
                    return CUDA_ERROR_ILLEGAL_ADDRESS;
                }
                to == CU_DEVICE_CPU ? move_to_cpu(address, bytes) : move_to_device(address, bytes);
                return CUDA_SUCCESS;
            };
            Engine::get().enqueue(lock, stream, std::move(operation));
            allocation->last_prefetch = to;
            return CUDA_SUCCESS;
        });
}

Call prefetch_call{"cuMemPrefetchAsync"};

}  // namespace

std::shared_ptr<Allocation> allocate_managed(Context &context, std::size_t bytes) {
    const int file = memfd_create("simcuda_managed", MFD_CLOEXEC);
    const std::size_t mapped = round_to_page(bytes);
    auto allocation =
        std::make_shared<Allocation>(Allocation::Kind::managed, context.device, &context);
    if (file >= 0 && ftruncate(file, static_cast<off_t>(mapped)) == 0) {
        allocation->view = Mapping::of_file(file, 0, mapped);
        allocation->alias = Mapping::of_file(file, 0, mapped);
    }
    close(file);
    if (allocation->view == nullptr || allocation->alias == nullptr) {
        return nullptr;
    }
    allocation->bytes = bytes;
    allocation->base = reinterpret_cast<std::uintptr_t>(allocation->view->address());
    allocation->engine_base = allocation->alias->address();
    advise({allocation->base, mapped}, MADV_DONTFORK);  // a forked child has no managed memory
    return allocation;
}

void move_to_device(std::uintptr_t address, std::size_t bytes) {
    const Pages pages(address, bytes);
    migrated_pages += count_present(pages);
    advise(pages, MADV_DONTNEED);
}

void move_to_cpu(std::uintptr_t address, std::size_t bytes) {
    const Pages pages(address, bytes);
    for (std::uintptr_t page = pages.begin; page < pages.begin + pages.bytes;
         page += kCpuPageBytes) {
        const char touched = *reinterpret_cast<const volatile char *>(page);
        (void)touched;
    }
}

}  // namespace simcuda

using namespace simcuda;

extern "C" unsigned long simcuda_migrated_pages(void) {
    return migrated_pages;
}

#undef cuMemPrefetchAsync
// The form before CUDA 13.0.
extern "C" CUresult cuMemPrefetchAsync(CUdeviceptr address, std::size_t bytes, CUdevice to,
                                       CUstream stream) {
    return prefetch(prefetch_call, address, bytes, to, stream);
}

extern "C" CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, std::size_t bytes,
                                          CUmemLocation location, unsigned int flags,
                                          CUstream stream) {
    const bool to_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    constexpr int kHost = 2;  // CU_MEM_LOCATION_TYPE_HOST of CUDA 12.2
    if (flags != 0 || (!to_device && static_cast<int>(location.type) != kHost)) {
        return prefetch_call.initialised([](Lock &) { return CUDA_ERROR_INVALID_VALUE; });
    }
    return prefetch(prefetch_call, address, bytes, to_device ? location.id : CU_DEVICE_CPU, stream);
}
