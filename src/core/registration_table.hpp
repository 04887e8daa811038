// SPDX-License-Identifier: BSD-3-Clause
// Which memory of this process peers may read and write by a transfer.
#pragma once

#include "core/registration_list.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace gpushm {

/** A peer names memory by a registration's id and an address; nothing outside of a living
 *  registration is ever touched for it. An id is never used again. Thread safe. */
class RegistrationTable {
public:
    static RegistrationTable &instance();

    /** The id; never 0. */
    uint64_t add(const void *address, size_t length);
    /** What peers read there by themselves from now on is not to count. */
    void remove(uint64_t id);

    /** What a registration covers; false when it does not exist. */
    bool find(uint64_t id, const void **address, size_t *length) const;

    /** Whether all of [address, address + length) lies in the registration. */
    bool covers(uint64_t id, uint64_t address, uint64_t length) const;

    /** How often one was removed: while that stays, what was covered is. */
    uint64_t removals() const { return removals_.load(std::memory_order_acquire); }

    /** `*list`, of zeroes, is in memory that peers see: it is kept up to date until withdraw(), which empties it. */
    void publish(RegistrationList *list);
    void withdraw(RegistrationList *list);

private:
    struct Range {
        uint64_t begin;
        uint64_t length;
    };

    size_t take_place();
    void set(size_t place, uint64_t id);

    mutable std::mutex mutex_;
    std::atomic<uint64_t> removals_{0};  // changed with mutex_ held
    std::vector<RegistrationList *> published_;
    std::vector<uint64_t> listed_;   // what the published lists hold, as far as they were used
    std::vector<size_t> free_places_;  // below listed_.size()
    size_t next_victim_ = 0;  // whose place is taken when none is free
    uint64_t added_ = 0;
    std::unordered_map<uint64_t, Range> ranges_;
};

}  // namespace gpushm
