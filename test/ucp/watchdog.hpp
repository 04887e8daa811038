// SPDX-License-Identifier: BSD-3-Clause
// What must not hang, and how long is too long.
#pragma once

#include "check.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace gpushm::ucp_test {

// Far more than any call waits for a kernel of ours, for slow machines; without a bound it hangs.
constexpr double kMaxSeconds = 5;

/** Ends the process when something does not end, also where it sits in the driver. */
class Watchdog {
public:
    explicit Watchdog(const char *what)
        : thread_([this, what] {
              std::unique_lock<std::mutex> lock(mutex_);
              if (!wake_.wait_for(lock, std::chrono::duration<double>(4 * kMaxSeconds),
                                  [this] { return ended_; })) {
                  fail("hangs: %s", what);
              }
          }) {}
    ~Watchdog() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            ended_ = true;
        }
        wake_.notify_one();
        thread_.join();
    }
    Watchdog(const Watchdog &) = delete;
    Watchdog &operator=(const Watchdog &) = delete;

private:
    std::mutex mutex_;
    std::condition_variable wake_;
    bool ended_ = false;
    std::thread thread_;
};

}  // namespace gpushm::ucp_test
