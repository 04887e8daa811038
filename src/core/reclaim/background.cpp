// SPDX-License-Identifier: BSD-3-Clause
#include "core/reclaim/background.hpp"

#include "core/base/log.hpp"
#include "core/base/monotonic_clock.hpp"
#include "core/reclaim/idle_context.hpp"

#include <pthread.h>

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

// To look takes 0.1 ms where the context has work, and sends the standby kernel away.
constexpr uint64_t kFirstPauseNs = 1'000'000;
constexpr uint64_t kLongestPauseNs = 50'000'000;

// A task takes 0.2 ms, in which a thread that waits for messages does not look for them.
constexpr size_t kMaxAtOnce = 4;

// When nobody who waits for messages has looked, the thread of the background does.
constexpr std::chrono::milliseconds kUnattended{100};

class Background {
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

    void add_for_idle(const Context &context, Task task) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (is_useless_) {
            return;
        }
        waiting_.push_back({context, std::move(task)});
        waiting_count_.store(waiting_.size(), std::memory_order_release);
        pause_ns_ = kFirstPauseNs;
        if (running_ || start()) {
            wake_.notify_one();
        }
    }

    size_t waiting() const { return waiting_count_.load(std::memory_order_acquire); }

    /** By a thread that waits for messages. */
    void look() {
        if (waiting() == 0) {
            return;
        }
        const uint64_t now = monotonic_nanoseconds();
        last_look_.store(now, std::memory_order_relaxed);
        const NoEndOfContext lives;
        if (lives && now >= next_look_) {
            run_waiting();
        }
    }

    /** In a forked child, which has no such thread. Another one of its parent may have had the
     * heap's mutex. */
    void begin_anew() {
        const bool inherits = running_ || is_useless_ || waiting() != 0;
        new (this) Background;
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
        const NoEndOfContext lives;
        if (lives &&
            monotonic_nanoseconds() > last + std::chrono::nanoseconds(kUnattended).count()) {
            run_waiting();
        }
    }

    /** While no context can end. */
    void run_waiting() {
        std::vector<Context> busy;
        bool any = false;
        for (size_t i = 0; i < kMaxAtOnce; ++i) {
            Context context;
            if (!next_context(busy, &context)) {
                break;
            }
            if (free_of_work(context.first, context.second)) {
                run_first(context);
                any = true;
            } else {
                busy.push_back(context);
            }
        }
        std::lock_guard<std::mutex> lock(mutex_);
        // The next look begins with others.
        std::stable_partition(waiting_.begin(), waiting_.end(), [&](const Waiting &one) {
            return std::find(busy.begin(), busy.end(), one.context) == busy.end();
        });
        pause_ns_ = any ? kFirstPauseNs : std::min(2 * pause_ns_, kLongestPauseNs);
        next_look_ = monotonic_nanoseconds() + pause_ns_;
    }

    /** That of the first task whose context is none of those. */
    bool next_context(const std::vector<Context> &busy, Context *context) {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting &one) {
            return std::find(busy.begin(), busy.end(), one.context) == busy.end();
        });
        if (found == waiting_.end()) {
            return false;
        }
        *context = found->context;
        return true;
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

    uint64_t next_look_ = 0;  // guarded by NoEndOfContext, which comes before mutex_

    std::mutex mutex_;
    std::condition_variable wake_;
    // Lists: empty they take no memory, which begin_anew() must not.
    std::list<Task> tasks_;
    std::list<Waiting> waiting_;
    uint64_t pause_ns_ = kFirstPauseNs;
    bool running_ = false;
    // The parent has used the driver, so that in this process it does not work, nor is its memory
    // ours.
    bool is_useless_ = false;

    std::atomic<size_t> waiting_count_{0};
    std::atomic<uint64_t> last_look_{0};  // by a thread that waits for messages
};

/** Never destroyed. Made when the plugin is loaded: a child that is forked within the first call
 * would wait for its end. */
Background *const background = [] {
    static Background *made = new Background;
    pthread_atfork(nullptr, nullptr, [] { made->begin_anew(); });
    return made;
}();

}  // namespace

void run_in_background(std::function<void()> task) {
    background->add(std::move(task));
}

void run_when_idle(CUcontext context, unsigned long long id, std::function<void()> task) {
    if (work_is_known()) {
        background->add_for_idle({context, id}, std::move(task));
    } else {
        background->add(std::move(task));
    }
}

size_t waiting_for_idle() {
    return background->waiting();
}

void free_idle_memory() {
    background->look();
}

}  // namespace gpushm
