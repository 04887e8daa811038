// SPDX-License-Identifier: BSD-3-Clause
#include "core/registration_table.hpp"

#include <pthread.h>

namespace gpushm {

RegistrationTable &RegistrationTable::instance() {
    static RegistrationTable *table = new RegistrationTable;
    // A forked child has what its parent has registered, but not a thread of it that may have had the mutex.
    [[maybe_unused]] static const int watched = pthread_atfork(
        [] { table->mutex_.lock(); }, [] { table->mutex_.unlock(); }, [] { table->mutex_.unlock(); });
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
