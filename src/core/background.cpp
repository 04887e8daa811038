// SPDX-License-Identifier: BSD-3-Clause
#include "core/background.hpp"

#include "core/log.hpp"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace gpushm {
namespace {

class Background {
public:
    void add(std::function<void()> task) {
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

    /** In a forked child, which has no such thread. */
    void begin_anew() {
        const bool inherits = running_ || is_useless_;
        new (this) Background;
        is_useless_ = inherits;
    }

private:
    bool start() {
        try {
            std::thread([this] { run(); }).detach();
            running_ = true;
        } catch (const std::system_error &) {
            GPUSHM_LOG_ONCE(debug, "cannot start a thread: memory of the driver is freed at once");
        }
        return running_;
    }

    void run() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [this] { return !tasks_.empty(); });
            const std::function<void()> task = std::move(tasks_.front());
            tasks_.pop_front();
            lock.unlock();
            task();
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> tasks_;
    bool running_ = false;
    // The parent has used the driver, so that in this process it does not work, nor is its memory ours.
    bool is_useless_ = false;
};

/** Never destroyed. Made when the plugin is loaded: a child that is forked within the first call would wait
 *  for its end. */
Background *const background = [] {
    static Background *made = new Background;
    pthread_atfork(nullptr, nullptr, [] { made->begin_anew(); });
    return made;
}();

}  // namespace

void run_in_background(std::function<void()> task) {
    background->add(std::move(task));
}

}  // namespace gpushm
