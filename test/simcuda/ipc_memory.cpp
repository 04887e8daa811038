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
#include <list>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace simcuda {

namespace {

// What a CUipcMemHandle holds.
struct Exported {
    pid_t process;
    int file;             // its descriptor of the memory file
    ino_t file_identity;  // to recognise that another file has that descriptor now
    unsigned physical_device;
    std::uint64_t heap_offset;
    std::uint64_t bytes;
    std::uint64_t buffer_id;  // in the exporter
    std::uint64_t address;    // in the exporter
};
static_assert(sizeof(Exported) <= sizeof(CUipcMemHandle));

// What this process has opened. Opened again in the same context, the handle gives the same
// address; it cannot be opened in another context of the same device (cuIpcOpenMemHandle in the
// manual), where driver 580 does not answer CUDA_ERROR_ALREADY_MAPPED.
struct Opened {
    Exported exported;
    std::weak_ptr<Allocation> allocation;  // gone when its context is
    unsigned count;
};

std::list<Opened> &opened() {
    static auto &all = *new std::list<Opened>;
    return all;
}

// What is left afterwards is there and live.
void forget_closed() {
    opened().remove_if([](const Opened &one) {
        const auto allocation = one.allocation.lock();
        return allocation == nullptr || !allocation->live;
    });
}

bool same(const Exported &one, const Exported &other) {
    return one.process == other.process && one.file_identity == other.file_identity &&
           one.heap_offset == other.heap_offset && one.buffer_id == other.buffer_id;
}

// Whether the exporter had `one`, which is small, where it has `other` of another size now.
bool at_one_place(const Exported &one, const Exported &other) {
    constexpr std::size_t kMost = 1 << 20;
    return one.process == other.process && one.file_identity == other.file_identity &&
           one.bytes <= kMost && one.bytes != other.bytes &&
           one.address < other.address + other.bytes && other.address < one.address + one.bytes;
}

// The exporter's memory file, where the memory is held from now on; null if the exporter is gone or
// has freed the memory. The memory is held before that is asked: the exporter lets go first and
// then asks who holds it.
std::unique_ptr<FileUse> open_memory_file(const Exported &exported) {
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", static_cast<int>(exported.process),
                  exported.file);
    struct stat status;
    if (stat(path, &status) != 0 || status.st_ino != exported.file_identity) {
        return nullptr;
    }
    auto use = FileUse::open(path, static_cast<off_t>(exported.heap_offset));
    const off_t place = kExportedPlaces + static_cast<off_t>(exported.buffer_id);
    return use != nullptr && held_elsewhere(use->file(), place) ? std::move(use) : nullptr;
}

std::shared_ptr<Allocation> map_exported(const Exported &exported, Device &device,
                                         Context &context) {
    auto use = open_memory_file(exported);
    if (use == nullptr) {
        return nullptr;
    }
    auto allocation = std::make_shared<Allocation>(Allocation::Kind::ipc, &device, &context);
    const std::size_t mapped = round_to_page(exported.bytes);
    allocation->view = Mapping::faulting(use->file(), exported.heap_offset, mapped);
    allocation->alias = Mapping::of_file(use->file(), exported.heap_offset, mapped);
    allocation->use = std::move(use);
    if (allocation->view == nullptr || allocation->alias == nullptr) {
        return nullptr;
    }
    allocation->bytes = exported.bytes;
    allocation->base = reinterpret_cast<std::uintptr_t>(allocation->view->address());
    allocation->engine_base = allocation->alias->address();
    return allocation;
}

CUresult open_handle(Context &context, CUdeviceptr *address, const Exported &exported) {
    forget_closed();
    for (Opened &known : opened()) {
        const auto mapped = known.allocation.lock();
        if (at_one_place(known.exported, exported)) {
            return CUDA_ERROR_ALREADY_MAPPED;
        }
        if (!same(known.exported, exported) || mapped->context->device != context.device) {
            continue;
        }
        if (mapped->context != &context) {
            return CUDA_ERROR_ALREADY_MAPPED;
        }
        ++known.count;
        *address = mapped->base;
        trace_result(*address);
        return CUDA_SUCCESS;
    }
    Device *device = find_physical_device(exported.physical_device);
    if (device == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!can_access(*context.device, *device)) {
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    auto allocation = map_exported(exported, *device, context);
    if (allocation == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *address = allocation->base;
    trace_result(*address);
    opened().push_back({exported, allocation, 1});
    Allocations::get().add(std::move(allocation));
    return CUDA_SUCCESS;
}

CUresult open_mem_handle(CUdeviceptr *address, const CUipcMemHandle &handle, unsigned flags) {
    static Call call{"cuIpcOpenMemHandle", Call::Kind::unsafe};
    return call.given(flags).with_context([&](Lock &, Context &context) -> CUresult {
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

}  // namespace

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    static Call call{"cuIpcGetMemHandle"};
    return call.given(address).with_context([&](Lock &, Context &) -> CUresult {
        const auto allocation = Allocations::get().find(address);
        if (handle == nullptr || allocation == nullptr ||
            allocation->kind != Allocation::Kind::device) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const int file = allocation->device->heap->file();
        struct stat status;
        if (fstat(file, &status) != 0 || !hold_place(file, exported_place(*allocation))) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        allocation->exported = true;
        const Exported exported{getpid(),
                                file,
                                status.st_ino,
                                allocation->device->physical,
                                allocation->heap_offset,
                                allocation->bytes,
                                allocation->id,
                                allocation->base};
        std::memset(handle, 0, sizeof(*handle));
        std::memcpy(handle, &exported, sizeof(exported));
        return CUDA_SUCCESS;
    });
}

#undef cuIpcOpenMemHandle
extern "C" CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle,
                                       unsigned int flags) {
    return open_mem_handle(address, handle, flags);
}

extern "C" CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle,
                                          unsigned int flags) {
    return open_mem_handle(address, handle, flags);
}

extern "C" CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    static Call call{"cuIpcCloseMemHandle", Call::Kind::unsafe};
    return call.given(address).with_context([&](Lock &lock, Context &) -> CUresult {
        forget_closed();
        for (auto one = opened().begin(); one != opened().end(); ++one) {
            const auto allocation = one->allocation.lock();
            if (allocation->base == address) {
                if (--one->count == 0) {
                    opened().erase(one);
                    Engine::get().wait_to_free(lock, *allocation->context);
                    Allocations::get().release(allocation);
                }
                return CUDA_SUCCESS;
            }
        }
        return CUDA_ERROR_INVALID_VALUE;
    });
}
