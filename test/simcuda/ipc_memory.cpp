// SPDX-License-Identifier: BSD-3-Clause
// Device memory of other processes: they open the memory file of the exporter's device through
// /proc/PID/fd and map the allocation's part of it, so that both see one memory.
#include "allocation.hpp"
#include "call.hpp"
#include "device.hpp"
#include "device_heap.hpp"
#include "engine.hpp"

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <list>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace simcuda {

namespace {

// What a CUipcMemHandle holds.
struct Exported {
    pid_t process;
    int file;            // its descriptor of the memory file
    ino_t file_identity; // to recognise that another file has that descriptor now
    unsigned physical_device;
    std::uint64_t heap_offset;
    std::uint64_t bytes;
    std::uint64_t buffer_id; // in the exporter
};
static_assert(sizeof(Exported) <= sizeof(CUipcMemHandle));

// What this process has opened. Opened again in the same context, the handle gives the same address
// (cuIpcOpenMemHandle in the manual).
struct Opened {
    Exported exported;
    std::shared_ptr<Allocation> allocation;
    unsigned count;
};

std::list<Opened>& opened()
{
    static auto& all = *new std::list<Opened>;
    return all;
}

bool same(const Exported& one, const Exported& other)
{
    return one.process == other.process && one.file_identity == other.file_identity &&
           one.heap_offset == other.heap_offset && one.buffer_id == other.buffer_id;
}

Device* find_physical_device(unsigned physical)
{
    for (const auto& device : devices()) {
        if (device->physical == physical) {
            return device.get();
        }
    }
    return nullptr;
}

// The exporter's memory file, or -1.
int open_memory_file(const Exported& exported)
{
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", static_cast<int>(exported.process),
                  exported.file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    struct stat status;
    if (file >= 0 && (fstat(file, &status) != 0 || status.st_ino != exported.file_identity)) {
        close(file);
        return -1;
    }
    return file;
}

std::shared_ptr<Allocation> map_exported(const Exported& exported, Device& device, Context& context)
{
    const int file = open_memory_file(exported);
    if (file < 0) {
        return nullptr;
    }
    auto allocation = std::make_shared<Allocation>(Allocation::Kind::ipc, &device, &context);
    const std::size_t mapped = round_to_page(exported.bytes);
    allocation->view = Mapping::faulting(file, exported.heap_offset, mapped);
    allocation->alias = Mapping::of_file(file, exported.heap_offset, mapped);
    close(file);
    if (allocation->view == nullptr || allocation->alias == nullptr) {
        return nullptr;
    }
    allocation->bytes = exported.bytes;
    allocation->base = reinterpret_cast<std::uintptr_t>(allocation->view->address());
    allocation->engine_base = allocation->alias->address();
    return allocation;
}

CUresult open_handle(Context& context, CUdeviceptr* address, const Exported& exported)
{
    for (Opened& known : opened()) {
        if (known.allocation->live && same(known.exported, exported)) {
            if (known.allocation->context != &context) {
                return CUDA_ERROR_ALREADY_MAPPED;
            }
            ++known.count;
            *address = known.allocation->base;
            return CUDA_SUCCESS;
        }
    }
    Device* device = find_physical_device(exported.physical_device);
    if (device == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    auto allocation = map_exported(exported, *device, context);
    if (allocation == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *address = allocation->base;
    Allocations::get().add(allocation);
    opened().push_back({exported, std::move(allocation), 1});
    return CUDA_SUCCESS;
}

CUresult open_mem_handle(CUdeviceptr* address, const CUipcMemHandle& handle, unsigned flags)
{
    static Call call{"cuIpcOpenMemHandle"};
    return call.with_context([&](Lock&, Context& context) -> CUresult {
        Exported exported;
        std::memcpy(&exported, &handle, sizeof(exported));
        if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (exported.process == getpid()) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        return open_handle(context, address, exported);
    });
}

} // namespace

} // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address)
{
    static Call call{"cuIpcGetMemHandle"};
    return call.with_context([&](Lock&, Context&) -> CUresult {
        const auto allocation = Allocations::get().find(address);
        if (handle == nullptr || allocation == nullptr ||
            allocation->kind != Allocation::Kind::device) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const int file = allocation->device->heap->file();
        struct stat status;
        if (fstat(file, &status) != 0) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        const Exported exported{getpid(),
                                file,
                                status.st_ino,
                                allocation->device->physical,
                                allocation->heap_offset,
                                allocation->bytes,
                                allocation->id};
        std::memset(handle, 0, sizeof(*handle));
        std::memcpy(handle, &exported, sizeof(exported));
        return CUDA_SUCCESS;
    });
}

#undef cuIpcOpenMemHandle
extern "C" CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle,
                                       unsigned int flags)
{
    return open_mem_handle(address, handle, flags);
}

extern "C" CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle,
                                          unsigned int flags)
{
    return open_mem_handle(address, handle, flags);
}

extern "C" CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    static Call call{"cuIpcCloseMemHandle"};
    return call.with_context([&](Lock& lock, Context&) -> CUresult {
        opened().remove_if([](const Opened& one) { return !one.allocation->live; });
        for (auto one = opened().begin(); one != opened().end(); ++one) {
            if (one->allocation->base == address) {
                if (--one->count == 0) {
                    const auto allocation = one->allocation;
                    opened().erase(one);
                    Engine::get().wait_for_device(lock, *allocation->device);
                    Allocations::get().release(allocation);
                }
                return CUDA_SUCCESS;
            }
        }
        return CUDA_ERROR_INVALID_VALUE;
    });
}
