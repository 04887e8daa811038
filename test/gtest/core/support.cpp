// SPDX-License-Identifier: BSD-3-Clause
#include "test/gtest/core/support.hpp"

#include "core/base/log.hpp"
#include "core/shm/mailbox_receiver.hpp"
#include "core/shm/mailbox_sender.hpp"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>

namespace gpushm::test {
namespace {

std::mutex log_mutex;
std::vector<std::string> log_lines;

void keep_line(LogLevel, const char *, unsigned, const char *, const char *message) {
    std::lock_guard<std::mutex> lock(log_mutex);
    log_lines.push_back(message);
}

void print_line(LogLevel level, const char *, unsigned, const char *, const char *message) {
    if (level == LogLevel::error || level == LogLevel::warn) {
        fprintf(stderr, "gpushm: %s\n", message);
    }
}

unsigned char pattern_byte(size_t position, uint64_t seed) {
    uint64_t word = (position / 8 + 1) * 0x9e3779b97f4a7c15ull ^ seed * 0xd1342543de82ef95ull;
    word ^= word >> 29;
    word *= 0xbf58476d1ce4e5b9ull;
    return static_cast<unsigned char>(word >> (8 + position % 8 * 7));
}

}  // namespace

// ---------------------------------------------------------------- log

LogCapture::LogCapture() {
    {
        std::lock_guard<std::mutex> lock(log_mutex);
        log_lines.clear();
    }
    set_log_sink(keep_line);
}

LogCapture::~LogCapture() {
    set_log_sink(print_line);
}

size_t LogCapture::count(const std::string &text) const {
    std::lock_guard<std::mutex> lock(log_mutex);
    return std::count_if(log_lines.begin(), log_lines.end(), [&](const std::string &line) {
        return line.find(text) != std::string::npos;
    });
}

// ---------------------------------------------------------------- processes

void Channel::send_bytes(const void *data, size_t length) const {
    // MSG_NOSIGNAL: a child that failed shows by its status, not by SIGPIPE here.
    (void)!::send(write_fd_, data, length, MSG_NOSIGNAL);
}

bool Channel::receive_bytes(void *data, size_t length) const {
    return recv(read_fd_, data, length, MSG_WAITALL) == static_cast<ssize_t>(length);
}

Child::Child(const std::function<int(const Channel &)> &body) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds_) != 0) {
        perror("socketpair");
        abort();
    }
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds_[0]);
        alarm(100);
        const int status = getppid() == parent ? body(Channel(fds_[1], fds_[1])) : 1;
        fflush(nullptr);
        _exit(status);
    }
    close(fds_[1]);
    channel_ = Channel(fds_[0], fds_[0]);
}

Child::~Child() {
    if (!reaped_) {
        kill(pid_, SIGKILL);
        reap();
    }
    close(fds_[0]);
}

void Child::kill_hard() {
    kill(pid_, SIGKILL);
    await_death();
}

void Child::await_death() const {
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
}

int Child::reap() {
    int status = 0;
    waitpid(pid_, &status, 0);
    reaped_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int children_that_end_well(int count, const std::function<int()> &body) {
    for (int ended = 0; ended < count; ++ended) {
        Child child([&body](const Channel &) {
            alarm(20);
            return body();
        });
        if (child.reap() != 0) {
            return ended;  // the next ones would take as long
        }
    }
    return count;
}

// ---------------------------------------------------------------- data

uint64_t Random::next() {
    // xorshift64*
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return (state_ * 0x2545f4914f6cdd1dull) >> 16;
}

void fill_pattern(void *data, size_t length, uint64_t seed) {
    auto *bytes = static_cast<unsigned char *>(data);
    for (size_t i = 0; i < length; ++i) {
        bytes[i] = pattern_byte(i, seed);
    }
}

size_t pattern_mismatch(const void *data, size_t length, uint64_t seed) {
    const auto *bytes = static_cast<const unsigned char *>(data);
    size_t i = 0;
    while (i < length && bytes[i] == pattern_byte(i, seed)) {
        ++i;
    }
    return i;
}

// ---------------------------------------------------------------- this process

namespace {

/** Opens what a process keeps open from its first segment and its first peer on. */
void open_what_is_kept() {
    if (const auto mailbox = MailboxReceiver::create(2, 64)) {
        const char *why;
        MailboxSender::attach(mailbox->address(), mailbox->address(), &why);
    }
}

}  // namespace

size_t open_descriptors() {
    static std::once_flag opened;
    std::call_once(opened, open_what_is_kept);
    size_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory) != nullptr) {
        ++count;
    }
    closedir(directory);
    return count;
}

size_t mappings_named(const std::string &text, const char *description) {
    std::ifstream maps(std::string("/proc/self/") + description);
    std::string line;
    size_t count = 0;
    while (std::getline(maps, line)) {
        count += line.find(text) != std::string::npos;
    }
    return count;
}

}  // namespace gpushm::test
