// SPDX-License-Identifier: BSD-3-Clause
#include "meeting.hpp"

#include "../ucp/check.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gpushm::scale_test {

using ucp_test::fail;

namespace {

/** There are many more processes than cores: who finds nothing to do makes room. */
void make_room() {
    usleep(2000);
}

}  // namespace

Meeting::Meeting(const std::string &path, size_t process_count) : process_count_(process_count) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0) {
        fail("%s: %s", path.c_str(), strerror(errno));
    }
    void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) {
        fail("%s: %s", path.c_str(), strerror(errno));
    }
    shared_ = static_cast<Shared *>(memory);
}

Meeting::~Meeting() {
    munmap(shared_, sizeof(Shared));
}

void Meeting::publish_address(size_t rank, const std::string &address) {
    Shared::Address &place = shared_->addresses[rank];
    if (address.size() > sizeof(place.bytes)) {
        fail("an address of %zu bytes", address.size());
    }
    memcpy(place.bytes, address.data(), address.size());
    place.length.store(static_cast<uint32_t>(address.size()), std::memory_order_release);
}

std::string Meeting::address(size_t rank) const {
    const Shared::Address &place = shared_->addresses[rank];
    return {place.bytes, place.length.load(std::memory_order_acquire)};
}

void Meeting::barrier(const Progress &progress, bool observer) {
    ++barriers_;
    shared_->arrivals.fetch_add(1, std::memory_order_acq_rel);
    const auto waiting = [&] {
        return shared_->arrivals.load(std::memory_order_acquire) < barriers_ * process_count_ ||
               (observer && shared_->observed.load(std::memory_order_acquire) < barriers_);
    };
    while (waiting()) {
        if (progress() == 0) {
            make_room();
        }
    }
}

bool Meeting::wait_for_barrier(size_t n, const std::function<bool()> &given_up) const {
    while (shared_->arrivals.load(std::memory_order_acquire) < n * process_count_) {
        if (given_up()) {
            return false;
        }
        make_room();
    }
    return true;
}

void Meeting::report_milliseconds(uint64_t milliseconds) {
    uint64_t seen = shared_->longest.load();
    while (seen < milliseconds && !shared_->longest.compare_exchange_weak(seen, milliseconds)) {
    }
}

}  // namespace gpushm::scale_test
