// SPDX-License-Identifier: BSD-3-Clause
#include "core/mapping/ipc_mapping_cache.hpp"

#include "core/base/fork_safe.hpp"
#include "core/base/log.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/memory/memory_query.hpp"
#include "core/reclaim/deferred_free.hpp"

#include <chrono>
#include <new>

namespace gpushm {
namespace {

// A mapping takes address space here and keeps the memory from going back to the GPU when the peer
// frees it. An entry without a mapping takes a few hundred bytes.
constexpr size_t kMaxMapped = 128;
constexpr size_t kMaxWaiting = 128;  // closed mappings that wait for the driver
constexpr size_t kMaxEntries = 4096;

// An owner that has refused so often in a row, because of its driver or settings, is not asked any
// more.
constexpr unsigned kMaxRefusals = 3;

// First guesses: doc/decisions/mapping-costs.md.
constexpr double kFirstCost = 1e-3;
constexpr double kUsualCost = 0.3e-3;
constexpr double kCloseCost = 0.25e-3;

unsigned char *pointer(CUdeviceptr address) {
    return reinterpret_cast<unsigned char *>(address);
}

/** A mapping by CUDA IPC. */
class IpcMapping : public PeerMapping {
public:
    static std::shared_ptr<PeerMapping> open(const BufferKey &name, CUcontext context,
                                             const CUipcMemHandle &handle) {
        CUdeviceptr address = 0;
        const CUresult result = CudaDriver::get()->ipc_open_mem_handle(
            &address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        if (result != CUDA_SUCCESS) {
            // For example CUDA_ERROR_ALREADY_MAPPED, where the application opened it in another
            // context.
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
        return look_up_memory(pointer(address)).length >= name.length ? mapping : nullptr;
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
        : PeerMapping(pointer(address), length),
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
    DescriptorMapping(CUdeviceptr address, size_t length) : PeerMapping(pointer(address), length) {}

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

IpcMappingCache &IpcMappingCache::instance() {
    return ForkSafe<IpcMappingCache>::instance();
}

IpcMappingCache::IpcMappingCache() : cost_seconds_(kFirstCost) {}

/** The entry of a buffer, which becomes the youngest; made at the first use. */
IpcMappingCache::Entry &IpcMappingCache::touch(const Key &key) {
    const auto known = entries_.find(key);
    if (known != entries_.end()) {
        ages_.splice(ages_.end(), ages_, known->second.age);
        return known->second;
    }
    std::list<Key> age = {key};  // both or none
    Entry &made = entries_[key];
    made.age = age.begin();
    ages_.splice(ages_.end(), age);
    return made;
}

uint64_t IpcMappingCache::generation() {
    return driver_hooks_installed() ? generation_.load(std::memory_order_acquire) + context_epoch()
                                    : unhooked_generation_.fetch_add(1, std::memory_order_relaxed);
}

std::shared_ptr<PeerMapping> IpcMappingCache::find(const BufferKey &name, CUcontext context) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto entry = entries_.find({name.owner, name.buffer_id, context});
    if (entry == entries_.end() || entry->second.state != State::mapped) {
        return nullptr;
    }
    if (!entry->second.mapping->alive()) {
        erase(entry);
        return nullptr;
    }
    ages_.splice(ages_.end(), ages_, entry->second.age);
    return entry->second.mapping;
}

bool IpcMappingCache::missed(const BufferKey &name, CUcontext context, double seconds, bool ready) {
    std::lock_guard<std::mutex> lock(mutex_);
    Entry &entry = touch({name.owner, name.buffer_id, context});
    entry.missed_seconds += seconds;
    entry.name = name;
    if (++entry.messages == 2) {
        prior_.note_return();
    }
    const bool ask = is_worth_asking(entry, ready);
    if (ask) {
        entry.state = State::requested;
        entry.context_id = CudaDriver::get()->context_id(context);
    }
    bound();
    return ask;
}

bool IpcMappingCache::is_worth_asking(Entry &entry, bool ready) {
    if (entry.state != State::counted || deferred_free_count() >= kMaxWaiting) {
        return false;
    }
    if (entry.missed_seconds >= cost_seconds_) {
        return true;
    }
    // A mapping beyond kMaxMapped would displace one that is known to be in use.
    const bool trusted = ready && mapped_ < kMaxMapped && lets_map(entry.name.owner) &&
                         prior_.trusts(entry.messages);
    if (trusted) {
        prior_.note_trust(entry.messages);
        entry.on_trust = entry.messages == 1;
    }
    return trusted;
}

bool IpcMappingCache::lets_map(uint64_t owner) const {
    const auto known = owners_.find(owner);
    return known == owners_.end() || known->second.refusals < kMaxRefusals;
}

void IpcMappingCache::note_outcome(uint64_t owner, bool mapped) {
    const auto known = owners_.find(owner);
    if (known != owners_.end()) {
        known->second.refusals = mapped ? 0 : known->second.refusals + 1;
    }
}

void IpcMappingCache::receive(uint64_t owner, uint64_t buffer_id, const MappingHandle *handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto entry = entries_.lower_bound({owner, buffer_id, nullptr});
         entry != entries_.end() && std::get<0>(entry->first) == owner &&
         std::get<1>(entry->first) == buffer_id;
         ++entry) {
        if (entry->second.state == State::requested) {
            entry->second.state = State::refused;
            if (handle != nullptr) {
                open(entry->second, std::get<2>(entry->first), *handle);
            }
            note_outcome(owner, entry->second.state == State::mapped);
        }
    }
    bound();
}

void IpcMappingCache::open(Entry &entry, CUcontext context, const MappingHandle &handle) {
    const auto begin = std::chrono::steady_clock::now();
    const RelaxedCapture relaxed(CudaDriver::get());
    CurrentContext current(CudaDriver::get(), context, entry.context_id);
    if (current.result() == CUDA_SUCCESS) {
        entry.mapping = handle.sharing == BufferKey::Sharing::ipc_handle
                            ? IpcMapping::open(entry.name, context, handle.ipc)
                            : DescriptorMapping::open(entry.name, handle.descriptor);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (entry.mapping == nullptr) {
        prior_.note_cost(took.count());
        return;
    }
    entry.mapping->prior_ = &prior_;
    entry.mapping->awaits_return_ = entry.on_trust && entry.messages == 1;
    entry.state = State::mapped;
    ages_.splice(ages_.end(), ages_,
                 entry.age);  // it may have waited for long, and is about to be used
    generation_.fetch_add(1, std::memory_order_release);
    ++mapped_;
    count_cost(took.count());
}

/** Leaves out the first mapping, which sets up more than itself and says nothing of later ones. */
void IpcMappingCache::count_cost(double seconds) {
    cost_seconds_ = any_opened_ ? (cost_seconds_ + seconds + kCloseCost) / 2 : kUsualCost;
    prior_.note_cost(any_opened_ ? seconds + kCloseCost : kUsualCost);
    any_opened_ = true;
}

void IpcMappingCache::erase(Entries::iterator entry) {
    generation_.fetch_add(1, std::memory_order_release);
    if (entry->second.state == State::mapped) {
        --mapped_;
    }
    ages_.erase(entry->second.age);
    entries_.erase(entry);
}

/** Keeps the numbers of mappings and entries within their limits. */
void IpcMappingCache::bound() {
    while (entries_.size() > kMaxEntries) {
        erase(entries_.find(ages_.front()));
    }
    for (auto key = ages_.begin(); mapped_ > kMaxMapped && key != ages_.end();) {
        const auto entry = entries_.find(*key++);
        if (entry->second.state == State::mapped) {
            erase(entry);
        }
    }
}

void IpcMappingCache::forget_buffer(uint64_t owner, uint64_t buffer_id) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto entry = entries_.lower_bound({owner, buffer_id, nullptr});
    while (entry != entries_.end() && std::get<0>(entry->first) == owner &&
           std::get<1>(entry->first) == buffer_id) {
        erase(entry++);
    }
}

bool IpcMappingCache::belongs_to(uint64_t owner, pid_t pid) {
    std::lock_guard<std::mutex> lock(mutex_);
    return owners_.try_emplace(owner, Owner{pid}).first->second.pid == pid;
}

void IpcMappingCache::forget_process(uint64_t owner) {
    std::lock_guard<std::mutex> lock(mutex_);
    owners_.erase(owner);
    auto entry = entries_.lower_bound({owner, 0, nullptr});
    while (entry != entries_.end() && std::get<0>(entry->first) == owner) {
        erase(entry++);
    }
}

}  // namespace gpushm
