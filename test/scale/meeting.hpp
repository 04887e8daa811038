// SPDX-License-Identifier: BSD-3-Clause
// Where the processes of a test meet, whoever started them: a file that all of them map.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace gpushm::scale_test {

constexpr size_t kMaxProcesses = 1024;

/** Called again and again while others are waited for; the number of things that happened. */
using Progress = std::function<unsigned()>;

class Meeting {
public:
    /** Maps the file, which belongs to this test alone; made when it does not exist. Fails the test
     * when that is not possible. */
    Meeting(const std::string &path, size_t process_count);
    ~Meeting();
    Meeting(const Meeting &) = delete;
    Meeting &operator=(const Meeting &) = delete;

    void publish_address(size_t rank, const std::string &address);
    /** Empty until that process has published it. */
    std::string address(size_t rank) const;

    /** Returns when all processes are here, and `observed` as many times as they have met, if there
     * is an observer. */
    void barrier(const Progress &progress, bool observer);
    /** The observer's side: returns when all processes have come to their n-th barrier, false when
     * `given_up` says so. */
    bool wait_for_barrier(size_t n, const std::function<bool()> &given_up) const;
    /** Lets them go on. */
    void observed(size_t n) { shared_->observed.store(n, std::memory_order_release); }

    /** The longest of what the processes report; milliseconds. */
    void report_milliseconds(uint64_t milliseconds);
    uint64_t longest_milliseconds() const { return shared_->longest.load(); }

private:
    // In shared memory; all begins as zero.
    struct Shared {
        std::atomic<uint64_t> arrivals;  // at all barriers together
        std::atomic<uint64_t> observed;  // barriers
        std::atomic<uint64_t> longest;
        struct Address {
            std::atomic<uint32_t> length;  // stored (release) after the bytes
            char bytes[4092];
        } addresses[kMaxProcesses];
    };

    Shared *shared_;
    size_t process_count_;
    size_t barriers_ = 0;  // that this process has come to
};

}  // namespace gpushm::scale_test
