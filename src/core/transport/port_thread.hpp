// SPDX-License-Identifier: BSD-3-Clause
// Which thread uses a port.
#pragma once

#include <pthread.h>

#include <atomic>
#include <mutex>

namespace gpushm {

/** Callers use a port from one thread at a time. The thread that last called enter() may also use
 * it from a hook, where nobody knows whether another thread uses the port by now: act_if_own()
 * keeps others out meanwhile. Thread safe. */
class PortThread {
public:
    /** By the thread that uses the port now, before it changes anything of it. */
    void enter() {
        if (!is_own()) {
            const std::lock_guard<std::mutex> lock(mutex_);
            thread_.store(pthread_self(), std::memory_order_relaxed);
        }
    }

    /** Does something if the calling thread was the last one that entered. */
    template <typename Action>
    void act_if_own(Action action) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (is_own()) {
            action();
        }
    }

private:
    // Only a thread itself stores its id, so a relaxed load is enough.
    bool is_own() const { return thread_.load(std::memory_order_relaxed) == pthread_self(); }

    std::atomic<pthread_t> thread_{pthread_self()};
    std::mutex mutex_;
};

}  // namespace gpushm
