// SPDX-License-Identifier: BSD-3-Clause
#include "core/pinning/host_registration_cache.hpp"

#include "core/base/fork_safe.hpp"
#include "core/base/log.hpp"
#include "core/base/monotonic_clock.hpp"
#include "core/base/no_throw.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/memory/memory_query.hpp"
#include "core/pinning/lockable_memory.hpp"
#include "core/reclaim/quiescence.hpp"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <thread>
#include <utility>

namespace gpushm {
namespace {

// The cost of page-locking: doc/decisions/pinning-costs.md.
constexpr double kPinSeconds = 0.3e-3;
constexpr double kPinSecondsPerByte = 1.5e-10;

constexpr size_t kMaxRanges = 256;

// How often quiescence is asked for while the answer is no: doc/decisions/reclaim-deferred-free.md.
constexpr uint64_t kFirstAskPauseNs = 1'000'000;
constexpr uint64_t kLongestAskPauseNs = 50'000'000;

/** Ranges that invalidate() was given while this thread was within acquire(), because the C library
 * gave memory back. They are applied before acquire() returns. */
struct Deferred {
    static constexpr size_t kMax = 16;
    bool within_acquire = false;
    size_t count = 0;  // > kMax: all
    uintptr_t begin[kMax];
    uintptr_t end[kMax];
};

thread_local Deferred deferred;

uintptr_t page_floor(uintptr_t address) {
    static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    return address & ~(page - 1);
}

uintptr_t page_ceiling(uintptr_t address) {
    static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    return (address + page - 1) & ~(page - 1);
}

/** Whether the application has page-locked all of [begin, end). */
bool locked_by_application(const MemoryInfo &info, uintptr_t begin, uintptr_t end) {
    const auto base = reinterpret_cast<uintptr_t>(info.base);
    return info.kind == MemoryKind::pinned && begin >= base && end <= base + info.length;
}

}  // namespace

/** Locked pages. The thread that drops the last hold unlocks them. It does not leave that to the
 * background, although the driver waits for all work of the GPU: a copy of the memory that this
 * thread or the application starts meanwhile would lose the lock while it runs. */
struct HostRegistrationCache::Pinned {
    void *begin;
    CUcontext context;
    HostRegistrationCache &pins;
    Locked &slot;
    unsigned long long context_id = 0;
    bool mapped_for_kernels = false;
    bool registered = false;  // else only the slot is taken

    ~Pinned() {
        if (slot.end.load(std::memory_order_acquire) == 0) {
            return;  // in a forked child: the pages are the parent's
        }
        if (registered) {
            unregister();
        }
        pins.release(slot);
    }

    void unregister() const {
        slot.unlocking.store(true, std::memory_order_release);
        const RelaxedCapture relaxed(CudaDriver::get());
        const CurrentContext current(CudaDriver::get(), context, context_id);
        // Else the lock ended with the context; another one may lock these pages now.
        if (current.result() == CUDA_SUCCESS) {
            CudaDriver::get()->mem_host_unregister(begin);
        }
    }
};

HostRegistrationCache &HostRegistrationCache::instance() {
    return ForkSafe<HostRegistrationCache>::instance();
}

void HostRegistrationCache::begin_in_child() {
    deferred = Deferred();
    new (this) HostRegistrationCache;
}

void HostRegistrationCache::enable(size_t limit_bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    limit_bytes_ = limit_bytes;
}

HostRegistrationCache::Hold HostRegistrationCache::acquire(const MemoryInfo &info,
                                                           const void *address, size_t length,
                                                           CUcontext context,
                                                           double missed_seconds) {
    const auto begin = reinterpret_cast<uintptr_t>(address);
    // The driver does not tell which of both has locked it.
    const bool ours = info.kind == MemoryKind::pinned && overlaps_locked(begin, begin + 1);
    if (!ours && locked_by_application(info, begin, begin + length)) {
        return Hold(Hold(), address);  // not null, and holds nothing
    }
    Hold hold;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (limit_bytes_ == 0 || (info.kind != MemoryKind::host && !ours) ||
            length > limit_bytes_) {
            return nullptr;
        }
        deferred.within_acquire = true;
        as_possible([&] {  // else a CPU copies
            hold = find_or_pin(page_floor(begin), page_ceiling(begin + length), context,
                               missed_seconds);
        });
        deferred.within_acquire = false;
    }
    if (deferred.count != 0) {
        hold = nullptr;
        apply_deferred();
    }
    return hold;
}

bool HostRegistrationCache::is_mapped_for_kernels(const Hold &hold) {
    return hold.use_count() != 0 && static_cast<const Pinned *>(hold.get())->mapped_for_kernels;
}

/** A hold of whole pages if they are locked. They become locked when they were used often enough.
 */
HostRegistrationCache::Hold HostRegistrationCache::find_or_pin(uintptr_t begin, uintptr_t end,
                                                               CUcontext context,
                                                               double missed_seconds) {
    const auto range = merge(begin, end);
    if (range == ranges_.end()) {
        return nullptr;
    }
    Range &found = range->second;
    if (found.pinned && !is_locked_still(found)) {
        unpin(range);
    }
    ages_.splice(ages_.end(), ages_, found.age);
    ++found.uses;
    found.missed_seconds += missed_seconds;
    const size_t bytes = found.end - range->first;
    const double cost = kPinSeconds + kPinSecondsPerByte * static_cast<double>(bytes);
    if (!found.pinned && !found.refused && found.uses > 1 && found.missed_seconds >= cost &&
        make_room(bytes)) {
        pin(range, context);
    }
    Hold hold = found.pinned;
    bound(range->first);
    return hold;
}

/** The range that contains [begin, end), made of the ranges that it overlaps as far as the limit
 * allows. end() when it overlaps memory that is locked and held, or cannot be unlocked now. */
HostRegistrationCache::Ranges::iterator HostRegistrationCache::merge(uintptr_t begin,
                                                                     uintptr_t end) {
    auto range = ranges_.first_behind(begin);
    if (range != ranges_.end() && range->first <= begin && range->second.end >= end) {
        return range;
    }
    const uintptr_t wanted_begin = begin;
    const uintptr_t wanted_end = end;
    double missed_seconds = 0;
    unsigned uses = 0;
    while (range != ranges_.end() && range->first < end) {
        if (!may_erase(range->second)) {
            return ranges_.end();
        }
        missed_seconds += range->second.missed_seconds;
        uses += range->second.uses;
        begin = std::min(begin, range->first);
        end = std::max(end, range->second.end);
        erase(range++);
    }
    if (end - begin > limit_bytes_) {
        begin = wanted_begin;
        end = wanted_end;
    }
    Range made;
    made.end = end;
    made.missed_seconds = missed_seconds;
    made.uses = uses;
    std::list<uintptr_t> age(1, begin);
    made.age = age.begin();
    const auto place = ranges_.emplace(begin, std::move(made)).first;
    ages_.splice(ages_.end(), age);
    return place;
}

void HostRegistrationCache::pin(Ranges::iterator range, CUcontext context) {
    const CudaDriver *driver = CudaDriver::get();
    const size_t bytes = range->second.end - range->first;
    if (overlaps_locked(range->first, range->second.end)) {
        return;  // a part is being unlocked
    }
    size_t slot = 0;
    while (slot < kMaxLocked && locked_[slot].end.load(std::memory_order_relaxed) != 0) {
        ++slot;
    }
    if (slot == kMaxLocked) {
        return;
    }
    auto *const begin = reinterpret_cast<void *>(range->first);
    const std::shared_ptr<Pinned> pinned(new Pinned{begin, context, *this, locked_[slot]});
    // First of all, so that a concurrent invalidate() waits for the end of this.
    locked_count_.fetch_add(1, std::memory_order_release);
    locked_[slot].unlocking.store(false, std::memory_order_relaxed);
    locked_[slot].begin.store(range->first, std::memory_order_relaxed);
    locked_[slot].end.store(range->second.end, std::memory_order_release);
    if (!may_be_locked(range->first, range->second.end)) {
        GPUSHM_LOG(debug,
                   "%zu bytes of the application are not page-locked: they lie in a heap, or "
                   "are not mapped as a whole",
                   bytes);
        range->second.refused = true;
        return;
    }
    const RelaxedCapture relaxed(driver);
    CurrentContext current(driver, context);
    range->second.epoch = context_epoch();  // before the driver is asked
    // Without the id the end of the lock with its context is not seen.
    if (current.result() != CUDA_SUCCESS ||
        driver->query_context_id(context, &pinned->context_id) != CUDA_SUCCESS) {
        return;
    }
    const CUresult result = driver->mem_host_register(
        begin, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result != CUDA_SUCCESS) {
        // The application has page-locked part of it, or it is mapped read-only or from a device.
        GPUSHM_LOG(debug, "cannot page-lock %zu bytes of the application (%s): a CPU copies them",
                   bytes, driver->error_name(result));
        range->second.refused = true;
        return;
    }
    pinned->registered = true;
    pinned->mapped_for_kernels = gpushm::is_mapped_for_kernels(begin);
    range->second.pinned = pinned;
    pinned_bytes_ += bytes;
}

/** The memory of the slot is not locked any more. */
void HostRegistrationCache::release(Locked &slot) {
    slot.end.store(0, std::memory_order_release);
    locked_count_.fetch_sub(1, std::memory_order_release);
}

void HostRegistrationCache::unpin(Ranges::iterator range) {
    pinned_bytes_ -= range->second.end - range->first;
    range->second.pinned = nullptr;
    range->second.kept = false;
}

void HostRegistrationCache::erase(Ranges::iterator range) {
    if (range->second.pinned) {
        unpin(range);
    }
    ages_.erase(range->second.age);
    ranges_.erase(range);
}

/** Page-locking ends with the context (cudaDeviceReset). */
bool HostRegistrationCache::is_locked_still(Range &range) {
    const uint64_t epoch = context_epoch();  // before the driver is asked
    if (contexts_are_watched() && range.epoch == epoch) {
        return true;
    }
    range.epoch = epoch;
    return CudaDriver::get()->context_is_alive(range.pinned->context, range.pinned->context_id);
}

/** Whether the range is not locked, or may be unlocked now. If true the caller must erase it,
 * because copies of the application wait. */
bool HostRegistrationCache::may_erase(const Range &range) {
    if (range.pinned.use_count() != 1 || range.kept) {
        return range.pinned == nullptr;
    }
    // In this order; ApplicationCopy does the reverse. So one of both sees the other.
    std::atomic<bool> &unlocking = range.pinned->slot.unlocking;
    unlocking.store(true);
    const bool may = application_copies_.load() == 0 && may_unlock(range);
    if (!may) {
        unlocking.store(false, std::memory_order_release);
    }
    return may;
}

HostRegistrationCache::ApplicationCopy::ApplicationCopy(HostRegistrationCache &pins,
                                                        const TouchedBytes &sides)
    : pins_(pins) {
    // Also where nothing is locked: another thread may lock it before the driver looks.
    pins_.application_copies_.fetch_add(1);
    for (const ByteRange &side : {sides.destination, sides.source}) {
        const auto begin = reinterpret_cast<uintptr_t>(side.begin);
        while (pins_.has_locked(side.begin, side.length) &&
               pins_.is_being_unlocked(begin, begin + side.length)) {
            std::this_thread::yield();
        }
    }
}

HostRegistrationCache::ApplicationCopy::~ApplicationCopy() {
    pins_.application_copies_.fetch_sub(1, std::memory_order_release);
}

/** Whether unlocking returns at once. Else the driver may wait for a kernel that waits for a
 * message of this thread. */
bool HostRegistrationCache::may_unlock(const Range &range) {
    if (!quiescence_is_known()) {
        return true;
    }
    const uint64_t now = monotonic_nanoseconds();
    if (now < ask_again_) {
        return false;
    }
    const bool may = is_quiescent(range.pinned->context, range.pinned->context_id);
    ask_pause_ = may ? 0 : std::clamp(2 * ask_pause_, kFirstAskPauseNs, kLongestAskPauseNs);
    ask_again_ = now + ask_pause_;
    return may;
}

/** Unlocks the least recently used memory until `bytes` more may be locked; false when copies use
 * too much of it. */
bool HostRegistrationCache::make_room(size_t bytes) {
    for (auto age = ages_.begin(); age != ages_.end() && pinned_bytes_ + bytes > limit_bytes_;) {
        const auto range = ranges_.find(*age++);
        if (range->second.pinned && may_erase(range->second)) {
            erase(range);
        }
    }
    return pinned_bytes_ + bytes <= limit_bytes_;
}

/** Keeps the number of ranges within its limit; the range at `keep` is in use. */
void HostRegistrationCache::bound(uintptr_t keep) {
    for (auto age = ages_.begin(); age != ages_.end() && ranges_.size() > kMaxRanges;) {
        const auto range = ranges_.find(*age++);
        if (range->first != keep && may_erase(range->second)) {
            erase(range);
        }
    }
}

/** Takes out the ranges that overlap [begin, end); allocates nothing. Marks the locked memory that
 * only this holds. */
HostRegistrationCache::Ranges HostRegistrationCache::take_overlapping(uintptr_t begin,
                                                                      uintptr_t end) {
    std::lock_guard<std::mutex> lock(mutex_);
    return ranges_.take_overlapping(begin, end, [this](const auto &range) {
        const std::shared_ptr<Pinned> &pinned = range.second.pinned;
        if (pinned != nullptr) {
            pinned_bytes_ -= range.second.end - range.first;
            if (pinned.use_count() == 1) {
                pinned->slot.unlocking.store(true, std::memory_order_release);
            }
        }
        ages_.erase(range.second.age);
    });
}

/** On return no memory of [begin, end) is locked, except what is held. Runs without the mutex,
 * which threads that wait for messages need: the driver waits for kernels that run. */
void HostRegistrationCache::unlock_overlapping(uintptr_t begin, uintptr_t end) {
    take_overlapping(begin, end);
    while (is_being_unlocked(begin, end)) {
        std::this_thread::yield();  // by another thread
    }
}

bool HostRegistrationCache::overlaps_locked(uintptr_t begin, uintptr_t end) const {
    return std::any_of(std::begin(locked_), std::end(locked_),
                       [&](const Locked &locked) { return locked.overlaps(begin, end); });
}

bool HostRegistrationCache::is_being_unlocked(uintptr_t begin, uintptr_t end) const {
    return std::any_of(std::begin(locked_), std::end(locked_), [&](const Locked &locked) {
        return locked.overlaps(begin, end) && locked.unlocking.load();
    });
}

size_t HostRegistrationCache::length_of_one_copy(const void *address, size_t length) const {
    if (locked_count_.load(std::memory_order_acquire) == 0) {
        return length;
    }
    const auto begin = reinterpret_cast<uintptr_t>(address);
    for (const Locked &locked : locked_) {
        const uintptr_t end = locked.end.load(std::memory_order_acquire);
        if (begin < end && begin >= locked.begin.load(std::memory_order_relaxed)) {
            return std::min<size_t>(length, end - begin);
        }
    }
    return length;
}

bool HostRegistrationCache::has_locked(const void *address, size_t length) const {
    const auto begin = reinterpret_cast<uintptr_t>(address);
    return length != 0 && locked_count_.load(std::memory_order_acquire) != 0 &&
           overlaps_locked(begin, begin + length);
}

void HostRegistrationCache::keep(const void *address, size_t length) {
    const auto begin = reinterpret_cast<uintptr_t>(address);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto range = ranges_.first_behind(begin);
         range != ranges_.end() && range->first < begin + length; ++range) {
        range->second.kept = range->second.pinned != nullptr;
    }
}

void HostRegistrationCache::invalidate(const void *address, size_t length) {
    const auto begin = reinterpret_cast<uintptr_t>(address);
    if (!overlaps_locked(begin, begin + length)) {
        return;
    }
    if (deferred.within_acquire) {
        if (deferred.count < Deferred::kMax) {
            deferred.begin[deferred.count] = begin;
            deferred.end[deferred.count] = begin + length;
        }
        ++deferred.count;
        return;
    }
    // Forgetting may give memory back itself.
    deferred.within_acquire = true;
    unlock_overlapping(begin, begin + length);
    deferred.within_acquire = false;
    apply_deferred();
}

void HostRegistrationCache::make_way(const void *address, size_t length) {
    if (!deferred.within_acquire) {
        invalidate(address, length);
    }
}

void HostRegistrationCache::apply_deferred() {
    while (deferred.count != 0) {
        const size_t count = std::exchange(deferred.count, 0);
        deferred.within_acquire = true;
        for (size_t i = 0; i < std::min(count, Deferred::kMax); ++i) {
            unlock_overlapping(deferred.begin[i], deferred.end[i]);
        }
        if (count > Deferred::kMax) {
            unlock_overlapping(0, UINTPTR_MAX);
        }
        deferred.within_acquire = false;
    }
}

}  // namespace gpushm
