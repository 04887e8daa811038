// SPDX-License-Identifier: BSD-3-Clause
#include "core/mapping/ipc_mapping_cache.hpp"

#include "core/base/fork_safe.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/reclaim/deferred_free.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>

namespace gpushm {
namespace {

// A mapping takes address space here and keeps the memory from going back to the GPU when the peer
// frees it. An entry without a mapping takes a few hundred bytes.
constexpr size_t kMaxMapped = 128;
constexpr size_t kMaxWaiting = 128;  // closed mappings that wait for the driver
constexpr size_t kMaxEntries = 4096;
constexpr size_t kMaxKeepers = 256;  // contexts end, and a broken peer names any GPU

// An owner that has refused so often in a row, because of its driver or settings, is not asked any
// more.
constexpr unsigned kMaxRefusals = 3;

// First guesses: doc/decisions/mapping-costs.md.
constexpr double kFirstCost = 1e-3;
constexpr double kUsualCost = 0.3e-3;
constexpr double kCloseCost = 0.25e-3;

}  // namespace

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

bool IpcMappingCache::keeps_access(unsigned long long context_id, uint64_t device) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto keeper = keepers_.find({context_id, device});
    const auto entry = keeper != keepers_.end() ? entries_.find(keeper->second) : entries_.end();
    if (entry == entries_.end()) {
        return false;
    }
    ages_.splice(ages_.end(), ages_, entry->second.age);  // bound() takes old ones
    return entry->second.state == State::mapped || entry->second.state == State::requested;
}

bool IpcMappingCache::keep_access(const BufferKey &name, CUcontext context,
                                  unsigned long long context_id) {
    std::lock_guard<std::mutex> lock(mutex_);
    const Key key = {name.owner, name.buffer_id, context};
    const auto known = entries_.find(key);
    if (known != entries_.end() && known->second.state == State::refused) {
        return false;
    }
    if (keepers_.size() >= kMaxKeepers) {
        keepers_.clear();  // those that are in use come again
    }
    keepers_[{context_id, name.device}] = key;
    return true;
}

bool IpcMappingCache::is_keeper(const Key &key) const {
    return std::any_of(keepers_.begin(), keepers_.end(),
                       [&](const auto &keeper) { return keeper.second == key; });
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
    if (entry.state != State::counted || entry.messages < entry.next_try ||
        deferred_free_count() >= kMaxWaiting) {
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

void IpcMappingCache::erase(Entries::iterator entry) {
    generation_.fetch_add(1, std::memory_order_release);
    if (entry->second.state == State::mapped) {
        --mapped_;
    }
    ages_.erase(entry->second.age);
    entries_.erase(entry);
}

/** Of an owner. */
template <typename Condition>
void IpcMappingCache::erase_if(uint64_t owner, Condition condition) {
    auto entry = entries_.lower_bound({owner, 0, nullptr});
    while (entry != entries_.end() && std::get<0>(entry->first) == owner) {
        const auto next = std::next(entry);
        if (condition(entry->second)) {
            erase(entry);
        }
        entry = next;
    }
}

/** The entries of a buffer, one for each context; the action may erase its entry. */
template <typename Action>
void IpcMappingCache::for_each(uint64_t owner, uint64_t buffer_id, Action action) {
    auto entry = entries_.lower_bound({owner, buffer_id, nullptr});
    while (entry != entries_.end() && std::get<0>(entry->first) == owner &&
           std::get<1>(entry->first) == buffer_id) {
        action(entry++);
    }
}

void IpcMappingCache::receive(uint64_t owner, uint64_t buffer_id, const MappingHandle *handle) {
    if (handle != nullptr) {
        free_place_of(owner, buffer_id);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    for_each(owner, buffer_id, [&](Entries::iterator found) {
        Entry &entry = found->second;
        if (entry.state != State::requested) {
            return;
        }
        entry.state = State::refused;
        if (handle != nullptr) {
            open(found->first, entry, *handle);
        }
        if (entry.state != State::counted) {
            note_outcome(owner, entry.state == State::mapped);
        }
    });
    bound();
}

/** Closes mappings of memory that the owner has freed, for it has other memory there now: the
 * driver does not open that as long as they are open (CUDA_ERROR_ALREADY_MAPPED). */
void IpcMappingCache::free_place_of(uint64_t owner, uint64_t buffer_id) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        std::optional<BufferKey> name;
        for_each(owner, buffer_id, [&](Entries::iterator entry) { name = entry->second.name; });
        if (name) {
            forget_replaced(*name);
        }
    }
    if (deferred_free_count() != 0) {
        run_deferred_frees_now();
    }
}

void IpcMappingCache::forget_replaced(const BufferKey &name) {
    erase_if(name.owner, [&](const Entry &entry) {
        const BufferKey &other = entry.name;
        const bool overlaps = other.base - name.base < name.length ||
                              name.base - other.base < other.length;  // differences wrap
        return entry.state == State::mapped && other.buffer_id != name.buffer_id && overlaps;
    });
}

void IpcMappingCache::open(const Key &key, Entry &entry, const MappingHandle &handle) {
    const CUcontext context = std::get<2>(key);
    const auto begin = std::chrono::steady_clock::now();
    const RelaxedCapture relaxed(CudaDriver::get());
    CurrentContext current(CudaDriver::get(), context, entry.context_id);
    bool is_taken = false;
    if (current.result() == CUDA_SUCCESS) {
        entry.mapping = PeerMapping::open(entry.name, context, handle, &is_taken);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (entry.mapping == nullptr) {
        prior_.note_cost(took.count());
        if (is_taken) {  // until the context is quiescent, and the other mapping is closed
            entry.state = State::counted;
            entry.next_try = 2 * entry.messages;
        }
        return;
    }
    entry.mapping->prior_ = &prior_;
    entry.mapping->awaits_return_ = entry.on_trust && entry.messages == 1;
    entry.state = State::mapped;
    ages_.splice(ages_.end(), ages_,
                 entry.age);  // it may have waited for long, and is about to be used
    generation_.fetch_add(1, std::memory_order_release);
    ++mapped_;
    count_cost(key, took.count());
}

/** Leaves out the first mapping, which sets up more than itself and says nothing of later ones, and
 * those that keep the access to a GPU. */
void IpcMappingCache::count_cost(const Key &key, double seconds) {
    const bool is_first = !std::exchange(any_opened_, true);
    const double cost = is_first ? kUsualCost : seconds + kCloseCost;
    const bool counts = !is_keeper(key);
    if (is_first) {
        cost_seconds_ = cost;
    } else if (counts) {
        cost_seconds_ = (cost_seconds_ + cost) / 2;
    }
    if (counts) {
        prior_.note_cost(cost);
    }
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
    for_each(owner, buffer_id, [this](Entries::iterator entry) { erase(entry); });
}

bool IpcMappingCache::belongs_to(uint64_t owner, pid_t pid) {
    std::lock_guard<std::mutex> lock(mutex_);
    return owners_.try_emplace(owner, Owner{pid}).first->second.pid == pid;
}

void IpcMappingCache::forget_process(uint64_t owner) {
    std::lock_guard<std::mutex> lock(mutex_);
    owners_.erase(owner);
    erase_if(owner, [](const Entry &) { return true; });
}

}  // namespace gpushm
