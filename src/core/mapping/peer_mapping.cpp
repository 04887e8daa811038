// SPDX-License-Identifier: BSD-3-Clause
#include "core/mapping/peer_mapping.hpp"

#include "core/base/addresses.hpp"
#include "core/base/log.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/memory/memory_query.hpp"
#include "core/reclaim/deferred_free.hpp"

#include <new>

namespace gpushm {
namespace {

/** A mapping by CUDA IPC. */
class IpcMapping : public PeerMapping {
public:
    static std::shared_ptr<PeerMapping> open(const BufferKey &name, CUcontext context,
                                             const CUipcMemHandle &handle, bool *is_taken) {
        CUdeviceptr address = 0;
        const CUresult result = CudaDriver::get()->ipc_open_mem_handle(
            &address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        if (result != CUDA_SUCCESS) {
            *is_taken = result == CUDA_ERROR_ALREADY_MAPPED;
            GPUSHM_LOG(debug,
                       "cannot map a peer's GPU buffer of %llu bytes (%s): it is copied "
                       "through host memory",
                       static_cast<unsigned long long>(name.length),
                       CudaDriver::get()->error_name(result));
            return nullptr;
        }
        auto *const made = new (std::nothrow) IpcMapping(address, name.length, context);
        if (made == nullptr) {
            CudaDriver::get()->ipc_close_mem_handle(address);
            return nullptr;
        }
        const std::shared_ptr<PeerMapping> mapping(made, [](IpcMapping *last) {
            defer_free(last->context_, last->context_id_, [last] { delete last; });
        });
        // The owner states the length; a copy beyond the end would be a fault of the GPU.
        return look_up_memory(to_pointer(address)).length >= name.length ? mapping : nullptr;
    }
    ~IpcMapping() override {
        const RelaxedCapture relaxed(CudaDriver::get());
        CurrentContext current(CudaDriver::get(), context_, context_id_);
        if (current.result() == CUDA_SUCCESS) {
            CudaDriver::get()->ipc_close_mem_handle(reinterpret_cast<CUdeviceptr>(data_));
        }
    }
    /** False when it went with its context (cudaDeviceReset): its address may be something else by
     * now. */
    bool alive() const override {
        return CudaDriver::get()->context_is_alive(context_, context_id_);
    }

private:
    IpcMapping(CUdeviceptr address, size_t length, CUcontext context)
        : PeerMapping(to_pointer(address), length),
          context_(context),
          context_id_(CudaDriver::get()->context_id(context)) {}
    CUcontext context_;
    unsigned long long context_id_;
};

/** A mapping by a descriptor of cuMemExportToShareableHandle. */
class DescriptorMapping : public PeerMapping {
public:
    static std::shared_ptr<PeerMapping> open(const BufferKey &name, const UniqueFd &descriptor) {
        const CudaDriver *driver = CudaDriver::get();
        CUdevice device = 0;
        CUmemGenericAllocationHandle memory = 0;
        if (driver->mem_retain_allocation_handle == nullptr ||
            driver->ctx_get_device(&device) != CUDA_SUCCESS ||
            driver->mem_import_from_shareable_handle(
                &memory, reinterpret_cast<void *>(static_cast<uintptr_t>(descriptor.get())),
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS) {
            return nullptr;
        }
        CUdeviceptr address = map(memory, name.length, device);
        driver->mem_release(memory);  // the mapping keeps the memory
        if (address == 0) {
            return nullptr;
        }
        std::unique_ptr<DescriptorMapping> mapping(new (std::nothrow)
                                                       DescriptorMapping(address, name.length));
        if (mapping == nullptr) {
            unmap(address, name.length);
            return nullptr;
        }
        return std::shared_ptr<PeerMapping>(mapping.release(), [](PeerMapping *last) {
            run_in_background([last] { delete last; });
        });
    }
    ~DescriptorMapping() override {
        const CudaDriver *driver = CudaDriver::get();
        const RelaxedCapture relaxed(driver);
        unmap(reinterpret_cast<CUdeviceptr>(data_), length_);
    }

private:
    DescriptorMapping(CUdeviceptr address, size_t length)
        : PeerMapping(to_pointer(address), length) {}

    static void unmap(CUdeviceptr address, size_t length) {
        CudaDriver::get()->mem_unmap(address, length);
        CudaDriver::get()->mem_address_free(address, length);
    }
    static CUdeviceptr map(CUmemGenericAllocationHandle memory, size_t length, CUdevice device) {
        const CudaDriver *driver = CudaDriver::get();
        CUdeviceptr address = 0;
        if (driver->mem_address_reserve(&address, length, 0, 0, 0) != CUDA_SUCCESS) {
            return 0;
        }
        CUmemAccessDesc access = {};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = device;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (driver->mem_map(address, length, 0, memory, 0) != CUDA_SUCCESS) {
            driver->mem_address_free(address, length);
            return 0;
        }
        if (driver->mem_set_access(address, length, &access, 1) != CUDA_SUCCESS) {
            unmap(address, length);
            return 0;
        }
        return address;
    }
};

}  // namespace

std::shared_ptr<PeerMapping> PeerMapping::open(const BufferKey &name, CUcontext context,
                                               const MappingHandle &handle, bool *is_taken) {
    *is_taken = false;
    return handle.sharing == BufferKey::Sharing::ipc_handle
               ? IpcMapping::open(name, context, handle.ipc, is_taken)
               : DescriptorMapping::open(name, handle.descriptor);
}

unsigned char *PeerMapping::locate(const BufferKey &name, uint64_t address, uint64_t length) const {
    const uint64_t offset = address - name.base;
    return address >= name.base && offset <= length_ && length <= length_ - offset ? data_ + offset
                                                                                   : nullptr;
}

void PeerMapping::note_use(double seconds, bool is_new) {
    prior_->note_saving(seconds);
    const bool may_return = is_new && awaits_return_.load(std::memory_order_relaxed);
    if (may_return && awaits_return_.exchange(false, std::memory_order_relaxed)) {
        prior_->note_return();
    }
}

}  // namespace gpushm
