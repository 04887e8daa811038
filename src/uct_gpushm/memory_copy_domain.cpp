// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/memory_copy_domain.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/stream_captures.hpp"
#include "core/hooks/driver_hooks.hpp"
#include "core/hooks/system_call_watch.hpp"
#include "core/memory/allocation_history.hpp"
#include "core/memory/known_host_pages.hpp"
#include "core/memory/memory_query.hpp"
#include "core/reclaim/deferred_free.hpp"
#include "uct_gpushm/gpu_atomics.hpp"
#include "uct_gpushm/memory_types.hpp"
#include "uct_gpushm/memtype_cache.hpp"
#include "uct_gpushm/system_device.hpp"

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace gpushm::uct {
namespace {

ucs_memory_type_t to_memory_type(MemoryKind kind) {
    switch (kind) {
        case MemoryKind::device:
            return UCS_MEMORY_TYPE_CUDA;
        case MemoryKind::managed:
            return UCS_MEMORY_TYPE_CUDA_MANAGED;
        default:
            return UCS_MEMORY_TYPE_HOST;
    }
}

void report_freed(const MemoryInfo &allocation) {
    abi::report_memory_freed(allocation.base, allocation.length, to_memory_type(allocation.kind));
}

void forget_known_host_pages(void *address, size_t length) {
    KnownHostPages::instance().forget(address, length);
}

/** Turns UCX's memory-type cache off and installs the hooks, unless UCX was built with CUDA. Such a
 * UCX hooks the same functions of the driver before gpushm does, because it cannot change a
 * function that gpushm has changed; and its cache stays where cuda_copy answers, which takes long.
 * Returns whether gpushm is to tell UCX of freed GPU memory. */
bool prepare_process() {
    static std::once_flag once;
    static bool keeps_cache;
    std::call_once(once, [] {
        serve_atomics_on_gpu_memory();
        const bool has_events = abi::subscribe_unmap(forget_known_host_pages);
        const bool ucx_watches = abi::ucx_watches_cuda();
        const bool is_watched = has_events && watch_system_calls(abi::patch_function);
        keeps_cache = abi::find_cuda_copy() && ucx_watches;
        if (!keeps_cache) {
            disable_memtype_cache();
        }
        if (ucx_watches) {
            watch_contexts(abi::patch_function);
            watch_stream_captures(abi::patch_function);
            watch_host_memory(abi::patch_function);
            return;
        }
        if (!has_events) {
            GPUSHM_LOG(
                debug,
                "UCX has no memory events (UCX_MEM_EVENTS=n): gpushm asks the driver for the "
                "memory type of each message, which takes longer");
        } else if (install_driver_hooks(abi::patch_function, report_freed) && is_watched) {
            KnownHostPages::instance().trust();
            watch_stream_captures(abi::patch_function);
            if (abi::watch_key_packing()) {
                watch_early_returns(abi::patch_function);
            }
        }
    });
    return !keeps_cache;
}

/** Keeps small blocks allocated that UCX frees. cuMemFree waits for all work of the GPU, which may
 * be a kernel of the application that waits for a message. UCX 1.18 and newer allocate a byte of
 * GPU memory and free it when they first choose a protocol for it (ucp_mm_get_alloc_md_index). The
 * destructor gives the blocks back to the driver later, when their context is idle. Thread safe. */
class SmallBlocks {
public:
    SmallBlocks() = default;
    SmallBlocks(const SmallBlocks &) = delete;
    SmallBlocks &operator=(const SmallBlocks &) = delete;
    ~SmallBlocks() {
        for (const MemoryInfo &block : kept_) {
            defer_free(block.context, CudaDriver::get()->context_id(block.context),
                       [block] { give_back(block); });
        }
    }

    void add(const void *address, size_t length) {
        const bool is_small = length <= kMaxBytes;
        const MemoryInfo block = is_small ? query_memory(address) : MemoryInfo();
        const std::lock_guard<std::mutex> lock(mutex_);
        used_.erase(address);  // of a block that was freed with its context
        if (is_small) {
            used_[address] = block;
        }
    }

    /** False: the caller has to free the block. */
    bool keep(const void *address) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto block = used_.find(address);
        if (block == used_.end()) {
            return false;
        }
        const bool keep = kept_.size() < kMaxKept;
        if (keep) {
            kept_.push_back(block->second);
        }
        used_.erase(block);
        return keep;
    }

private:
    static constexpr size_t kMaxBytes = 512;  // the granularity of the driver's allocations
    static constexpr size_t kMaxKept = 64;

    /** Frees the block unless its context has ended (cudaDeviceReset): other memory may have its
     * address then. A reset and an allocation by another thread between query_memory() and
     * mem_free() are not seen; defer_free() cannot prevent them. */
    static void give_back(const MemoryInfo &block) {
        const CudaDriver *driver = CudaDriver::get();
        const RelaxedCapture relaxed(driver);
        if (query_memory(block.base).buffer_id == block.buffer_id) {
            const CurrentContext current(driver, block.context);
            driver->mem_free(device_pointer(block.base));
        }
    }

    std::mutex mutex_;
    std::unordered_map<const void *, MemoryInfo> used_;
    std::vector<MemoryInfo> kept_;
};

class MemoryCopyDomain : public Domain {
public:
    MemoryCopyDomain() : tells_of_freed_(prepare_process()) {}

    InterfaceKind interface_kind() const override { return InterfaceKind::memory_copy; }
    const char *device_name() const override { return "gpucopy"; }

    void query(abi::MdAttributes &attributes) const override {
        // Also in a UCX with cuda_copy, because UCX_TLS may exclude that, which is not known here.
        attributes.flags = UCT_MD_FLAG_REG | UCT_MD_FLAG_ALLOC;
        attributes.reg_mem_types = kAllMemoryTypes;
        attributes.access_mem_types = kAllMemoryTypes;
        attributes.detect_mem_types = kGpuMemoryTypes;
        attributes.alloc_mem_types = kGpuMemoryTypes;
    }

    ucs_status_t mem_alloc(size_t &length, void *&address, ucs_memory_type_t mem_type,
                           uct_mem_h &memh) override {
        const CudaDriver *driver = CudaDriver::get();
        const RelaxedCapture relaxed(driver);  // UCX 1.23 may allocate during a stream capture
        CUdeviceptr allocated = 0;
        CUresult result = CUDA_ERROR_NOT_SUPPORTED;
        if (mem_type == UCS_MEMORY_TYPE_CUDA) {
            result = driver->mem_alloc(&allocated, length);
        } else if (mem_type == UCS_MEMORY_TYPE_CUDA_MANAGED) {
            result = driver->mem_alloc_managed(&allocated, length, CU_MEM_ATTACH_GLOBAL);
        }
        if (result != CUDA_SUCCESS) {
            GPUSHM_LOG(debug, "cannot allocate %zu bytes of GPU memory (%s)", length,
                       driver->error_name(result));
            return result == CUDA_ERROR_NOT_SUPPORTED ? UCS_ERR_UNSUPPORTED : UCS_ERR_NO_MEMORY;
        }
        address = reinterpret_cast<void *>(allocated);
        memh = address;
        small_blocks_.add(address, length);
        return UCS_OK;
    }
    ucs_status_t mem_free(uct_mem_h memh) override {
        if (small_blocks_.keep(memh)) {
            return UCS_OK;
        }
        const CudaDriver *driver = CudaDriver::get();
        const RelaxedCapture relaxed(driver);
        const CUcontext context = query_memory(memh).context;
        std::optional<CurrentContext> current;  // the thread may have no context
        if (context != nullptr) {
            current.emplace(driver, context);
        }
        return driver->mem_free(reinterpret_cast<CUdeviceptr>(memh)) == CUDA_SUCCESS
                   ? UCS_OK
                   : UCS_ERR_IO_ERROR;
    }

    ucs_status_t mem_reg(void *address, size_t, uct_mem_h &memh) override {
        memh = address;
        return UCS_OK;
    }
    ucs_status_t mem_dereg(uct_mem_h, bool) override { return UCS_OK; }
    ucs_status_t mkey_pack(uct_mem_h, const void *, size_t, void *) override { return UCS_OK; }

    ucs_status_t mem_query(const void *address, size_t length,
                           abi::MemoryAttributes &attributes) override {
        // The common case. Memory that was at this address before was reported as freed when the
        // page was added, or by hooks.
        if (KnownHostPages::instance().contains(address)) {
            return UCS_ERR_INVALID_ADDR;
        }
        const MemoryInfo info = query_memory(address);
        if (tells_of_freed_) {
            report_contradicted(address, info);
        }
        if (!info.needs_gpu()) {
            return UCS_ERR_INVALID_ADDR;
        }
        attributes.mem_type = to_memory_type(info.kind);
        attributes.sys_dev = system_device_of(info);
        // UCP registers the range that it is told here. The buffer may span several mappings of
        // virtual memory management, so the range has to reach to its end.
        const auto *end = std::max(static_cast<const unsigned char *>(info.base) + info.length,
                                   static_cast<const unsigned char *>(address) + length);
        attributes.base_address = info.base;
        attributes.alloc_length =
            static_cast<size_t>(end - static_cast<const unsigned char *>(info.base));
        return UCS_OK;
    }

private:
    /** Tells UCX what cannot be at `address` any more. UCX would drop `address` from its
     * memory-type cache. */
    void report_contradicted(const void *address, const MemoryInfo &info) {
        std::vector<MemoryInfo> gone;
        // UCP takes memory for host memory if this fails, so it must not fail without memory.
        bool fresh = true;
        as_possible([&] { fresh = history_.observe(address, info, &gone); });
        std::for_each(gone.begin(), gone.end(), report_freed);
        if (info.needs_gpu() && fresh) {
            // Page-locked memory may have been at this address. It is host memory for UCP, and the
            // driver may unmap it without libucm seeing that.
            abi::report_memory_freed(info.base, info.length, UCS_MEMORY_TYPE_HOST);
        }
    }

    const bool tells_of_freed_;
    AllocationHistory history_;
    SmallBlocks small_blocks_;
};

}  // namespace

std::unique_ptr<Domain> make_memory_copy_domain() {
    return std::make_unique<MemoryCopyDomain>();
}

}  // namespace gpushm::uct
