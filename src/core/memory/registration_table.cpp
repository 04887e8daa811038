// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/registration_table.hpp"

#include "core/base/addresses.hpp"
#include "core/base/log.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>

namespace gpushm {
namespace {

// The wait for a living peer that does not end what it writes, or for a thread that does not
// progress its port.
constexpr std::chrono::seconds kWriterPatience{2};

}  // namespace

RegistrationTable &RegistrationTable::instance() {
    static RegistrationTable *table = new RegistrationTable;
    // A forked child keeps the registrations of its parent. The mutexes are held across the fork,
    // so no other thread of the parent has them. Mailboxes of the parent are not mapped in the
    // child, and no peer knows of memory of the child.
    [[maybe_unused]] static const int watched = pthread_atfork(
        [] {
            table->users_mutex_.lock();
            table->mutex_.lock();
        },
        [] {
            table->mutex_.unlock();
            table->users_mutex_.unlock();
        },
        [] {
            table->published_.clear();
            table->users_.clear();
            table->uses_.clear();
            table->mutex_.unlock();
            table->users_mutex_.unlock();
        });
    return *table;
}

// When the plugin is loaded: a child that is forked within the first call would wait for its end.
[[maybe_unused]] static const RegistrationTable &made_at_load = RegistrationTable::instance();

uint64_t RegistrationTable::add(const void *address, size_t length) {
    std::lock_guard<std::mutex> lock(mutex_);
    const size_t place = take_place();
    const uint64_t id = ++added_ * RegistrationList::kPlaces + place;
    ranges_[id] = {to_number(address), length};
    set(place, id);
    return id;
}

/** A free place. If there are too many registrations, one of them loses its place and is listed no
 * more. */
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
    if (take_out(id) && is_written(id)) {
        await_writes(id);
    }
}

bool RegistrationTable::take_out(uint64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ranges_.erase(id) == 0) {
        return false;
    }
    removals_.fetch_add(1, std::memory_order_release);
    const size_t place = RegistrationList::place_of(id);
    if (listed_[place] == id) {
        set(place, 0);
        free_places_.push_back(place);
    }
    // Before the program writes there anew, and before a look at DirectWrites.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return true;
}

/** Whether a peer writes to it, or this process for a peer. */
bool RegistrationTable::is_written(uint64_t id) {
    if (is_used(id)) {
        return true;
    }
    std::lock_guard<std::mutex> lock(users_mutex_);
    return std::any_of(users_.begin(), users_.end(),
                       [id](RegistrationUser *user) { return user->is_written(id); });
}

void RegistrationTable::await_writes(uint64_t id) {
    const auto end = std::chrono::steady_clock::now() + kWriterPatience;
    while (is_written(id)) {
        const bool is_late = std::chrono::steady_clock::now() > end;
        {
            std::lock_guard<std::mutex> lock(users_mutex_);
            for (RegistrationUser *user : users_) {
                is_late ? user->stop_waiting(id) : user->end_copies(id);
            }
        }
        if (is_late) {
            if (is_used(id)) {
                GPUSHM_LOG(
                    error,
                    "another thread of this process has been copying a peer's data into "
                    "deregistered memory for 2 seconds: let that thread progress its worker");
            }
            return;
        }
        sched_yield();
    }
}

bool RegistrationTable::is_used(uint64_t id) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::find(uses_.begin(), uses_.end(), id) != uses_.end();
}

RegistrationTable::Use RegistrationTable::use(uint64_t id, uint64_t address, uint64_t length) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!covers_locked(id, address, length)) {
        return nullptr;
    }
    uses_.push_back(id);
    return Use(this, {id});
}

void RegistrationTable::end_use(uint64_t id) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find(uses_.begin(), uses_.end(), id);
    if (found != uses_.end()) {  // a forked child has no part in its parent's
        *found = uses_.back();
        uses_.pop_back();
    }
}

void RegistrationTable::publish(RegistrationList *list, RegistrationUser *user) {
    std::lock_guard<std::mutex> users_lock(users_mutex_);
    std::lock_guard<std::mutex> lock(mutex_);
    published_.reserve(published_.size() + 1);
    if (user != nullptr) {
        users_.push_back(user);
    }
    published_.push_back(list);
    for (size_t place = 0; place < listed_.size(); ++place) {
        list->ids[place].store(listed_[place], std::memory_order_relaxed);
    }
}

void RegistrationTable::cancel(RegistrationList *list, RegistrationUser *user) {
    std::lock_guard<std::mutex> users_lock(users_mutex_);
    std::lock_guard<std::mutex> lock(mutex_);
    users_.erase(std::remove(users_.begin(), users_.end(), user), users_.end());
    published_.erase(std::remove(published_.begin(), published_.end(), list), published_.end());
    for (size_t place = 0; place < listed_.size(); ++place) {
        list->ids[place].store(0, std::memory_order_relaxed);
    }
}

bool RegistrationTable::covers(uint64_t id, uint64_t address, uint64_t length) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return covers_locked(id, address, length);
}

bool RegistrationTable::covers_locked(uint64_t id, uint64_t address, uint64_t length) const {
    const auto found = ranges_.find(id);
    if (found == ranges_.end() || address < found->second.begin) {
        return false;
    }
    const uint64_t offset = address - found->second.begin;
    return offset <= found->second.length && length <= found->second.length - offset;
}

}  // namespace gpushm
