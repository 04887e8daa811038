// SPDX-License-Identifier: BSD-3-Clause
// The pages behind registered host memory.
#include "known_host_pages.hpp"

#include <algorithm>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace simcuda {

namespace {

constexpr std::uintptr_t kCpuPageBytes = 4096;
constexpr int kUserModeOnly = 1;  // UFFD_USER_MODE_ONLY of Linux 5.11

std::uintptr_t round_down(std::uintptr_t address) {
    return address / kCpuPageBytes * kCpuPageBytes;
}

std::uintptr_t round_up(std::uintptr_t address) {
    return round_down(address + kCpuPageBytes - 1);
}

// Memory that is known to userfaultfd(2), in the write-protect mode of which nothing is used but
// that the kernel forgets a range when it is unmapped. -1 if the kernel does not permit it.
int open_watcher() {
    const int watcher = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | kUserModeOnly));
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP;
    if (watcher >= 0 && ioctl(watcher, UFFDIO_API, &api) != 0) {
        close(watcher);
        return -1;
    }
    return watcher;
}

int watcher() {
    static const int descriptor = open_watcher();
    return descriptor;
}

}  // namespace

KnownHostPages::KnownHostPages(std::uintptr_t address, std::size_t bytes)
    : address_(address),
      bytes_(bytes),
      duplicate_(Mapping::duplicate(reinterpret_cast<void *>(round_down(address)),
                                    round_up(address + bytes) - round_down(address))),
      pinned_(PinnedPages::pin(address, bytes)) {
    watched_ = duplicate_ == nullptr && watch(true);
}

KnownHostPages::~KnownHostPages() {
    if (watched_) {
        watch(false);
    }
}

char *KnownHostPages::engine_address() const {
    return duplicate_ != nullptr ? duplicate_->address() + address_ % kCpuPageBytes
                                 : reinterpret_cast<char *>(address_);
}

bool KnownHostPages::there(std::uintptr_t address, std::size_t bytes) const {
    if (duplicate_ != nullptr) {
        return true;
    }
    if (!pages_mapped(address, bytes)) {
        return false;
    }
    // A page at the edge may be another registration's too, and be forgotten with that one.
    const std::uintptr_t begin = std::max(round_down(address), round_up(address_));
    const std::uintptr_t end = std::min(round_up(address + bytes), round_down(address_ + bytes_));
    if (!watched_ || begin >= end) {
        return true;
    }
    uffdio_writeprotect protect{};
    protect.range = {begin, end - begin};
    return ioctl(watcher(), UFFDIO_WRITEPROTECT, &protect) == 0;  // protects nothing: mode is 0
}

bool KnownHostPages::watch(bool begin) const {
    uffdio_register range{};
    range.range.start = round_up(address_);
    const std::uintptr_t end = round_down(address_ + bytes_);
    if (watcher() < 0 || end <= range.range.start) {
        return false;
    }
    range.range.len = end - range.range.start;
    range.mode = UFFDIO_REGISTER_MODE_WP;
    return begin ? ioctl(watcher(), UFFDIO_REGISTER, &range) == 0
                 : ioctl(watcher(), UFFDIO_UNREGISTER, &range.range) == 0;
}

bool pages_mapped(std::uintptr_t address, std::size_t bytes) {
    const std::uintptr_t begin = round_down(address);
    const std::size_t length = round_up(address + bytes) - begin;
    std::vector<unsigned char> resident(length / kCpuPageBytes);
    return mincore(reinterpret_cast<void *>(begin), length, resident.data()) == 0;
}

}  // namespace simcuda
