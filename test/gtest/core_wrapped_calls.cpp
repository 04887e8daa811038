// SPDX-License-Identifier: BSD-3-Clause
#include "core_wrapped_calls.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

// The names are those that ld --wrap looks for.
extern "C" {
void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *address, size_t length);
int __real_poll(pollfd *events, nfds_t count, int timeout);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *address, size_t length);
int __wrap_poll(pollfd *events, nfds_t count, int timeout);
}

namespace {

struct SharedMapping {
    void *address;
    int uses;
};

std::mutex mutex;
bool share_mappings = false;
bool refuse_mappings = false;
std::map<ino_t, SharedMapping> shared_mappings;
std::function<void()> poll_action;

}  // namespace

void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    std::lock_guard<std::mutex> lock(mutex);
    if (refuse_mappings && fd >= 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    struct stat status;
    if (!share_mappings || fd < 0 || fstat(fd, &status) != 0) {
        return __real_mmap(address, length, protection, flags, fd, offset);
    }
    const auto known = shared_mappings.find(status.st_ino);
    if (known != shared_mappings.end()) {
        ++known->second.uses;
        return known->second.address;
    }
    void *result = __real_mmap(address, length, protection, flags, fd, offset);
    shared_mappings[status.st_ino] = {result, 1};
    return result;
}

int __wrap_munmap(void *address, size_t length) {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto mapping = shared_mappings.begin(); mapping != shared_mappings.end(); ++mapping) {
        if (mapping->second.address == address) {
            if (--mapping->second.uses > 0) {
                return 0;
            }
            shared_mappings.erase(mapping);
            break;
        }
    }
    return __real_munmap(address, length);
}

int __wrap_poll(pollfd *events, nfds_t count, int timeout) {
    std::function<void()> action;
    {
        std::lock_guard<std::mutex> lock(mutex);
        action = std::exchange(poll_action, nullptr);
    }
    if (action) {
        action();
    }
    return __real_poll(events, count, timeout);
}

namespace gpushm::test {

OneMappingPerFile::OneMappingPerFile() {
    std::lock_guard<std::mutex> lock(mutex);
    share_mappings = true;
}

OneMappingPerFile::~OneMappingPerFile() {
    std::lock_guard<std::mutex> lock(mutex);
    share_mappings = false;
}

NoMappings::NoMappings() {
    std::lock_guard<std::mutex> lock(mutex);
    refuse_mappings = true;
}

NoMappings::~NoMappings() {
    std::lock_guard<std::mutex> lock(mutex);
    refuse_mappings = false;
}

void before_next_poll(std::function<void()> action) {
    std::lock_guard<std::mutex> lock(mutex);
    poll_action = std::move(action);
}

}  // namespace gpushm::test
