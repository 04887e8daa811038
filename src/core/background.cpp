// SPDX-License-Identifier: BSD-3-Clause
#include "core/background.hpp"

#include "core/log.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace gpushm {
namespace {

/** Started when it is first needed; never destroyed. */
class Background {
public:
    Background() {
        try {
            std::thread([this] { run(); }).detach();
            running_ = true;
        } catch (const std::system_error &) {
            GPUSHM_LOG(debug, "cannot start a thread: memory of the driver is freed at once");
        }
    }

    void add(std::function<void()> task) {
        if (!running_) {
            task();
            return;
        }
        {
            std::lock_guard<std::mutex> lock(mutex_);
            tasks_.push_back(std::move(task));
        }
        wake_.notify_one();
    }

private:
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
};

}  // namespace

void run_in_background(std::function<void()> task) {
    static Background *background = new Background;
    background->add(std::move(task));
}

}  // namespace gpushm
