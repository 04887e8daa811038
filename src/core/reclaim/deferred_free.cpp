// SPDX-License-Identifier: BSD-3-Clause
#include "core/reclaim/deferred_free.hpp"

#include "core/base/fork_safe.hpp"
#include "core/base/log.hpp"
#include "core/base/monotonic_clock.hpp"
#include "core/reclaim/context_lifetime.hpp"
#include "core/reclaim/quiescence.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace gpushm {
namespace {

// To ask for quiescence takes 0.1 ms where the context has work, and sends the standby kernel away.
constexpr uint64_t kMinPauseNs = 1'000'000;
constexpr uint64_t kMaxPauseNs = 50'000'000;

// A task takes 0.2 ms, during which a thread that waits for messages does not poll for them.
constexpr size_t kMaxAtOnce = 4;

// Of run_deferred_frees_now(): no new tasks are begun later. A task may defer itself.
constexpr uint64_t kMaxNowNs = 2'000'000;

// The background thread asks when no thread that waits for messages has asked for so long.
constexpr std::chrono::milliseconds kUnattended{100};

class DeferredFrees {
public:
    using Task = std::function<void()>;

    void add(Task task) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (is_useless_) {
                return;
            }
            if (running_ || start()) {
                tasks_.push_back(std::move(task));
                wake_.notify_one();
                return;
            }
        }
        task();
    }

    using Context = std::pair<CUcontext, unsigned long long>;  // and its id

    void add_for(const Context &context, Task task) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (is_useless_) {
            return;
        }
        waiting_.push_back({context, std::move(task)});
        waiting_count_.store(waiting_.size(), std::memory_order_release);
        pause_ns_ = kMinPauseNs;
        if (running_ || start()) {
            wake_.notify_one();
        }
    }

    size_t waiting() const { return waiting_count_.load(std::memory_order_acquire); }

    /** Called by a thread that waits for messages. */
    void run_quiescent() {
        if (waiting() == 0) {
            return;
        }
        const uint64_t now = monotonic_nanoseconds();
        last_look_.store(now, std::memory_order_relaxed);
        const ContextLifetimeLock alive(ContextLifetimeLock::Mode::alive_exclusive);
        if (alive && now >= next_look_) {
            run_waiting();
        }
    }

    /** The caller has a ContextLifetimeLock. */
    void run_now() {
        const uint64_t end = monotonic_nanoseconds() + kMaxNowNs;
        while (waiting() != 0 && run_waiting() && monotonic_nanoseconds() < end) {
        }
    }

    /** For ForkSafe. */
    void begin_in_child() {
        const bool inherits = running_ || is_useless_ || waiting() != 0;
        new (this) DeferredFrees;
        is_useless_ = inherits;
    }

private:
    struct Waiting {
        Context context;
        Task task;
    };

    bool start() {
        try {
            std::thread([this] { run(); }).detach();
            running_ = true;
        } catch (const std::system_error &) {
            GPUSHM_LOG_ONCE(debug,
                            "cannot start a thread: memory of the driver is freed at once, or by "
                            "threads that wait for messages");
        }
        return running_;
    }

    void run() {
        std::unique_lock<std::mutex> lock(mutex_);
        auto look_at = std::chrono::steady_clock::time_point::max();
        for (;;) {
            const auto now = std::chrono::steady_clock::now();
            look_at = waiting_.empty() ? std::chrono::steady_clock::time_point::max()
                                       : std::min(look_at, now + kUnattended);
            if (!tasks_.empty()) {
                const Task task = std::move(tasks_.front());
                tasks_.pop_front();
                lock.unlock();
                task();
                lock.lock();
            } else if (waiting_.empty()) {
                wake_.wait(lock);
            } else if (now < look_at) {
                wake_.wait_until(lock, look_at);
            } else {
                look_at = now + kUnattended;
                lock.unlock();
                look_unattended();
                lock.lock();
            }
        }
    }

    void look_unattended() {
        const uint64_t last = last_look_.load(std::memory_order_relaxed);
        const ContextLifetimeLock alive(ContextLifetimeLock::Mode::alive_exclusive);
        if (alive &&
            monotonic_nanoseconds() > last + std::chrono::nanoseconds(kUnattended).count()) {
            run_waiting();
        }
    }

    /** A few tasks; whether any ran. The caller has a ContextLifetimeLock. */
    bool run_waiting() {
        std::vector<Context> busy;
        const auto is_next = [&busy](const Waiting &one) {
            return std::find(busy.begin(), busy.end(), one.context) == busy.end();
        };
        bool any = false;
        for (size_t i = 0; i < kMaxAtOnce; ++i) {
            Context context;
            {
                std::lock_guard<std::mutex> lock(mutex_);
                const auto next = std::find_if(waiting_.begin(), waiting_.end(), is_next);
                if (next == waiting_.end()) {
                    break;
                }
                context = next->context;
            }
            if (is_quiescent(context.first, context.second)) {
                run_first(context);
                any = true;
            } else {
                busy.push_back(context);
            }
        }
        std::lock_guard<std::mutex> lock(mutex_);
        // The next round begins with other contexts.
        std::stable_partition(waiting_.begin(), waiting_.end(), is_next);
        pause_ns_ = any ? kMinPauseNs : std::min(2 * pause_ns_, kMaxPauseNs);
        next_look_ = monotonic_nanoseconds() + pause_ns_;
        return any;
    }

    void run_first(const Context &context) {
        Task task;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            const auto first =
                std::find_if(waiting_.begin(), waiting_.end(),
                             [&context](const Waiting &one) { return one.context == context; });
            if (first == waiting_.end()) {
                return;
            }
            task = std::move(first->task);
            waiting_.erase(first);
        }
        task();
        std::lock_guard<std::mutex> lock(mutex_);
        waiting_count_.store(waiting_.size(), std::memory_order_release);
    }

    uint64_t next_look_ = 0;  // guarded by ContextLifetimeLock, which is taken before mutex_

    std::mutex mutex_;
    std::condition_variable wake_;
    // Lists: an empty one takes no memory, which begin_in_child() must not allocate.
    std::list<Task> tasks_;
    std::list<Waiting> waiting_;
    uint64_t pause_ns_ = kMinPauseNs;
    bool running_ = false;
    // In a child whose parent has had tasks: the driver does not work, and the memory is the
    // parent's.
    bool is_useless_ = false;

    std::atomic<size_t> waiting_count_{0};
    std::atomic<uint64_t> last_look_{0};  // by a thread that waits for messages
};

DeferredFrees &frees() {
    return ForkSafe<DeferredFrees>::instance();
}

}  // namespace

void run_in_background(std::function<void()> task) {
    frees().add(std::move(task));
}

void defer_free(CUcontext context, unsigned long long id, std::function<void()> task) {
    if (quiescence_is_known()) {
        frees().add_for({context, id}, std::move(task));
    } else {
        frees().add(std::move(task));
    }
}

size_t deferred_free_count() {
    return frees().waiting();
}

void run_deferred_frees() {
    frees().run_quiescent();
}

void run_deferred_frees_now() {
    frees().run_now();
}

}  // namespace gpushm
