// SPDX-License-Identifier: BSD-3-Clause
// What the tests of the core share: log lines, child processes, data patterns.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gpushm::test {

/** Keeps the log lines of the core while it lives; one at a time. */
class LogCapture {
public:
    LogCapture();
    ~LogCapture();
    LogCapture(const LogCapture &) = delete;
    LogCapture &operator=(const LogCapture &) = delete;

    /** Lines that contain `text`. */
    size_t count(const std::string &text) const;
};

/** Both ends of a conversation between a test and its child process. */
class Channel {
public:
    Channel() = default;
    Channel(int read_fd, int write_fd) : read_fd_(read_fd), write_fd_(write_fd) {}

    template <typename T>
    void send(const T &value) const {
        send_bytes(&value, sizeof(value));
    }
    /** False when the other side is gone. */
    template <typename T>
    bool receive(T *value) const {
        return receive_bytes(value, sizeof(*value));
    }

private:
    void send_bytes(const void *data, size_t length) const;
    bool receive_bytes(void *data, size_t length) const;

    int read_fd_ = -1;
    int write_fd_ = -1;
};

/** A forked process, which ends at the latest with this object, or with the test. */
class Child {
public:
    /** What `body` returns is the exit status; 0 when it is right. */
    explicit Child(const std::function<int(const Channel &)> &body);
    ~Child();
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;

    pid_t pid() const { return pid_; }
    const Channel &channel() const { return channel_; }
    /** Ends it as kill -9 does and waits for its death; it stays a zombie until reap(). */
    void kill_hard();
    /** Waits for its end without reaping it. */
    void await_death() const;
    /** Waits for its end: the exit status, or 128 + the signal that ended it. */
    int reap();

private:
    pid_t pid_ = -1;
    int fds_[2] = {-1, -1};
    Channel channel_;
    bool reaped_ = false;
};

/** Forks up to `count` children that run `body`, one after the other, as long as all end well:
 * within 20 s, and it has returned 0. How many did. */
int children_that_end_well(int count, const std::function<int()> &body);

/** Small and fast, the same numbers in every run. */
class Random {
public:
    explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
    uint64_t next();
    /** In [0, bound). */
    size_t below(size_t bound) { return static_cast<size_t>(next() % bound); }

private:
    uint64_t state_;
};

/** Bytes that differ by place and by seed, so that a stale, shifted or missing byte shows. */
void fill_pattern(void *data, size_t length, uint64_t seed);
/** Where `data` differs from the pattern first; `length` when nowhere. */
size_t pattern_mismatch(const void *data, size_t length, uint64_t seed);

/** True after so long that only a fault explains it. */
class Deadline {
public:
    bool passed() const { return std::chrono::steady_clock::now() > end_; }

private:
    std::chrono::steady_clock::time_point end_ =
        std::chrono::steady_clock::now() + std::chrono::seconds(60);
};

/** Open descriptors of this process, those included that it keeps open from its first segment and
 * its first peer on: the first call opens them. */
size_t open_descriptors();

/** Mappings of this process with `text` in their line of /proc/self/maps, or of another file there
 * that describes them. */
size_t mappings_named(const std::string &text, const char *description = "maps");

}  // namespace gpushm::test
