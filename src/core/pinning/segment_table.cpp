// SPDX-License-Identifier: BSD-3-Clause
#include "core/pinning/segment_table.hpp"

#include "core/base/addresses.hpp"
#include "core/base/fork_safe.hpp"
#include "core/base/log.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/reclaim/deferred_free.hpp"
#include "core/standby/standby_registry.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace gpushm {
namespace {

// No more segments are locked while so many wait for a context that always has work.
constexpr size_t kMaxWaiting = 256;

// A standby kernel leaves sooner, unless its GPU is stuck in the work of another process. Meanwhile
// none is launched.
constexpr uint64_t kKernelPatienceNs = 100'000'000;
constexpr unsigned kMaxAttempts = 600;

/** Unlocks memory that nothing uses any more, and unmaps it. A standby kernel of any GPU may still
 * read it, for which the driver does not wait: then it is tried again. */
void unlock_and_unmap(unsigned char *base, size_t length, CUcontext context, unsigned long long id,
                      unsigned attempts) {
    const StandbyKernels::Absence no_kernel(kKernelPatienceNs);
    if (!no_kernel.complete() && attempts < kMaxAttempts) {
        GPUSHM_LOG(debug,
                   "%zu bytes of shared memory stay page-locked for now: a standby kernel does not "
                   "leave its GPU",
                   length);
        defer_free(context, id, [=] { unlock_and_unmap(base, length, context, id, attempts + 1); });
        return;
    }
    if (!no_kernel.complete()) {
        GPUSHM_LOG(warn,
                   "%zu bytes of shared memory stay page-locked: a standby kernel has not left its "
                   "GPU for a minute; look for a process that keeps that GPU busy",
                   length);
        return;
    }
    // Fails harmlessly when the driver or the context is gone already. Without a current context it
    // would fail too, and the driver would take memory that is mapped here later for the locked
    // pages.
    const RelaxedCapture relaxed(CudaDriver::get());
    CurrentContext current(CudaDriver::get(), context, id);
    CudaDriver::get()->mem_host_unregister(base);
    munmap(base, length);
}

}  // namespace

SegmentTable &SegmentTable::instance() {
    return ForkSafe<SegmentTable>::instance();
}

/** A child has no segments (MADV_DONTFORK). */
void SegmentTable::begin_in_child() {
    const bool enabled = pinning_enabled_;
    new (this) SegmentTable;
    pinning_enabled_ = enabled;
}

void SegmentTable::add(unsigned char *base, size_t length) {
    std::lock_guard<std::mutex> lock(mutex_);
    const uintptr_t begin = to_number(base);
    regions_[begin] = {begin + length, State::pageable, nullptr, 0, 0};
    lowest_ = std::min<uintptr_t>(lowest_, begin);
    highest_ = std::max<uintptr_t>(highest_, begin + length);
}

void SegmentTable::unmap(unsigned char *base, size_t length) {
    Regions::node_type taken;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        taken = regions_.extract(to_number(base));
    }
    if (taken.empty() || taken.mapped().state != State::pinned) {
        munmap(base, length);
        return;
    }
    const Region region = taken.mapped();
    defer_free(region.context, region.context_id, [base, length, region] {
        unlock_and_unmap(base, length, region.context, region.context_id, 0);
    });
}

void SegmentTable::set_pinning_enabled(bool enabled) {
    std::lock_guard<std::mutex> lock(mutex_);
    pinning_enabled_ = enabled;
}

bool SegmentTable::contains(const void *address) {
    if (is_elsewhere(address)) {
        return false;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    return regions_.containing(to_number(address)) != regions_.end();
}

/** Page-locking ends with the context (cudaDeviceReset). */
bool SegmentTable::still_pinned(Region &region, CUcontext alive, unsigned long long alive_id) {
    const uint64_t epoch = context_epoch();  // before the driver is asked
    const bool known = (region.context == alive && region.context_id == alive_id) ||
                       (contexts_are_watched() && region.epoch == epoch);
    if (region.state == State::pinned && !known) {
        region.epoch = epoch;
        if (!CudaDriver::get()->context_is_alive(region.context, region.context_id)) {
            region.state = State::pageable;
        }
    }
    return region.state == State::pinned;
}

bool SegmentTable::ensure_pinned(const void *address, CUcontext context,
                                 unsigned long long context_id) {
    if (is_elsewhere(address)) {
        return false;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = regions_.containing(to_number(address));
    if (found == regions_.end()) {
        return false;
    }
    Region &region = found->second;
    if (still_pinned(region, context, context_id) || region.state != State::pageable ||
        !pinning_enabled_ || deferred_free_count() >= kMaxWaiting) {
        return region.state == State::pinned;
    }
    const CudaDriver *driver = CudaDriver::get();
    const RelaxedCapture relaxed(driver);
    CurrentContext current(driver, context);
    if (current.result() != CUDA_SUCCESS) {
        return false;  // tried again with the next copy
    }
    region.epoch = context_epoch();
    const size_t length = region.end - found->first;
    const CUresult result =
        driver->mem_host_register(reinterpret_cast<void *>(found->first), length,
                                  CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    region.context = context;
    region.context_id = context_id;
    region.state = result == CUDA_SUCCESS ? State::pinned : State::refused;
    if (result != CUDA_SUCCESS) {
        GPUSHM_LOG_ONCE(warn,
                        "cannot page-lock %zu bytes of shared memory for the GPU (%s): GPU "
                        "copies go on more slowly; raise the locked-memory limit (ulimit -l)",
                        length, driver->error_name(result));
    }
    return result == CUDA_SUCCESS;
}

}  // namespace gpushm
