// SPDX-License-Identifier: BSD-3-Clause
#include "core/registration_table.hpp"

#include <pthread.h>

#include <algorithm>

namespace gpushm {

RegistrationTable &RegistrationTable::instance() {
    static RegistrationTable *table = new RegistrationTable;
    // A forked child has what its parent has registered, but not a thread of it that may have had the mutex. Mailboxes
    // of the parent are not mapped there, and nobody has been told of memory of the child.
    [[maybe_unused]] static const int watched = pthread_atfork(
        [] { table->mutex_.lock(); }, [] { table->mutex_.unlock(); },
        [] {
            table->published_.clear();
            table->invalidations_.store(0, std::memory_order_relaxed);
            table->mutex_.unlock();
        });
    return *table;
}

// When the plugin is loaded: a child that is forked within the first call would wait for its end.
[[maybe_unused]] static const RegistrationTable &made_at_load = RegistrationTable::instance();

uint64_t RegistrationTable::add(const void *address, size_t length) {
    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t id = next_id_++;
    ranges_[id] = {reinterpret_cast<uint64_t>(address), length};
    return id;
}

void RegistrationTable::remove(uint64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    ranges_.erase(id);
    removals_.fetch_add(1, std::memory_order_release);
}

void RegistrationTable::invalidate(uint64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    ranges_.erase(id);
    removals_.fetch_add(1, std::memory_order_release);
    const uint64_t now = invalidations_.fetch_add(1, std::memory_order_release) + 1;
    for (std::atomic<uint64_t> *word : published_) {
        word->store(now, std::memory_order_relaxed);
    }
    // Before anything that the program writes there from now on.
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

void RegistrationTable::publish(std::atomic<uint64_t> *word) {
    std::lock_guard<std::mutex> lock(mutex_);
    word->store(invalidations_.load(std::memory_order_relaxed), std::memory_order_release);
    published_.push_back(word);
}

void RegistrationTable::withdraw(std::atomic<uint64_t> *word) {
    std::lock_guard<std::mutex> lock(mutex_);
    published_.erase(std::remove(published_.begin(), published_.end(), word), published_.end());
}

bool RegistrationTable::find(uint64_t id, const void **address, size_t *length) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = ranges_.find(id);
    if (found == ranges_.end()) {
        return false;
    }
    *address = reinterpret_cast<const void *>(found->second.begin);
    *length = found->second.length;
    return true;
}

bool RegistrationTable::covers(uint64_t id, uint64_t address, uint64_t length) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = ranges_.find(id);
    if (found == ranges_.end() || address < found->second.begin) {
        return false;
    }
    const uint64_t offset = address - found->second.begin;
    return offset <= found->second.length && length <= found->second.length - offset;
}

}  // namespace gpushm
