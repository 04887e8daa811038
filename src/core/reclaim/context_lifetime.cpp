// SPDX-License-Identifier: BSD-3-Clause
#include "core/reclaim/context_lifetime.hpp"

#include "core/base/fork_safe.hpp"
#include "core/base/monotonic_clock.hpp"

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace gpushm {
namespace {

using Mode = ContextLifetimeLock::Mode;

struct Contexts {
    std::recursive_mutex mutex;       // of Mode::ending and alive_exclusive
    std::atomic<unsigned> ending{0};  // threads with Mode::ending
    std::atomic<unsigned> shared{0};  // threads with Mode::alive_shared

    void lock_to_end() {
        constexpr uint64_t kPatienceNs = 500'000'000;
        mutex.lock();
        ending.fetch_add(1);
        const uint64_t end = monotonic_nanoseconds() + kPatienceNs;
        while (shared.load() != 0 && monotonic_nanoseconds() < end) {
            sched_yield();
        }
    }

    /** Either this thread sees the one that is about to end a context, or that one sees this. */
    bool share() {
        shared.fetch_add(1);
        const bool taken = ending.load() == 0;
        if (!taken) {
            shared.fetch_sub(1);
        }
        return taken;
    }
};

bool take(Mode mode) {
    Contexts &contexts = ForkSafe<Contexts>::instance();
    if (mode == Mode::alive_shared) {
        return contexts.share();
    }
    if (mode == Mode::alive_exclusive) {
        return contexts.mutex.try_lock();
    }
    contexts.lock_to_end();
    return true;
}

}  // namespace

ContextLifetimeLock::ContextLifetimeLock(Mode mode) : mode_(mode), taken_(take(mode)) {}

ContextLifetimeLock::~ContextLifetimeLock() {
    Contexts &contexts = ForkSafe<Contexts>::instance();
    if (!taken_) {
        return;
    }
    if (mode_ == Mode::alive_shared) {
        contexts.shared.fetch_sub(1);
        return;
    }
    if (mode_ == Mode::ending) {
        contexts.ending.fetch_sub(1);
    }
    contexts.mutex.unlock();
}

}  // namespace gpushm
