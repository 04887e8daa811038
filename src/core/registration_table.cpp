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
            table->mutex_.unlock();
        });
    return *table;
}

// When the plugin is loaded: a child that is forked within the first call would wait for its end.
[[maybe_unused]] static const RegistrationTable &made_at_load = RegistrationTable::instance();

uint64_t RegistrationTable::add(const void *address, size_t length) {
    std::lock_guard<std::mutex> lock(mutex_);
    const size_t place = take_place();
    const uint64_t id = ++added_ * RegistrationList::kPlaces + place;
    ranges_[id] = {reinterpret_cast<uint64_t>(address), length};
    set(place, id);
    return id;
}

/** Of one that is not listed any more, where there are too many. */
size_t RegistrationTable::take_place() {
    if (!free_places_.empty()) {
        const size_t place = free_places_.back();
        free_places_.pop_back();
        return place;
    }
    if (listed_.size() == RegistrationList::kPlaces) {
        return next_victim_++ % RegistrationList::kPlaces;
    }
    free_places_.reserve(listed_.size() + 1);  // remove() is not to fail
    listed_.push_back(0);
    return listed_.size() - 1;
}

void RegistrationTable::set(size_t place, uint64_t id) {
    listed_[place] = id;
    for (RegistrationList *list : published_) {
        list->ids[place].store(id, std::memory_order_relaxed);
    }
}

void RegistrationTable::remove(uint64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ranges_.erase(id) == 0) {
        return;
    }
    removals_.fetch_add(1, std::memory_order_release);
    const size_t place = RegistrationList::place_of(id);
    if (listed_[place] == id) {
        set(place, 0);
        free_places_.push_back(place);
    }
    // Before anything that the program writes there from now on.
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

void RegistrationTable::publish(RegistrationList *list) {
    std::lock_guard<std::mutex> lock(mutex_);
    published_.push_back(list);
    for (size_t place = 0; place < listed_.size(); ++place) {
        list->ids[place].store(listed_[place], std::memory_order_relaxed);
    }
}

void RegistrationTable::withdraw(RegistrationList *list) {
    std::lock_guard<std::mutex> lock(mutex_);
    published_.erase(std::remove(published_.begin(), published_.end(), list), published_.end());
    for (size_t place = 0; place < listed_.size(); ++place) {
        list->ids[place].store(0, std::memory_order_relaxed);
    }
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
