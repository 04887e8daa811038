// SPDX-License-Identifier: BSD-3-Clause
// Which memory of this process peers may read and write by a transfer.
#pragma once

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
    void remove(uint64_t id);
    /** As remove(), of memory that peers may be reading by themselves: what they read from now on is not to count. */
    void invalidate(uint64_t id);

    /** What a registration covers; false when it does not exist. */
    bool find(uint64_t id, const void **address, size_t *length) const;

    /** Whether all of [address, address + length) lies in the registration. */
    bool covers(uint64_t id, uint64_t address, uint64_t length) const;

    /** How often one was removed: while that stays, what was covered is. */
    uint64_t removals() const { return removals_.load(std::memory_order_acquire); }

    /** How often that was. Who tells peers of a registration reads it before he looks whether that is there. */
    uint64_t invalidations() const { return invalidations_.load(std::memory_order_acquire); }
    /** `*word` is in memory that peers see: it is invalidations() until withdraw(). */
    void publish(std::atomic<uint64_t> *word);
    void withdraw(std::atomic<uint64_t> *word);

private:
    struct Range {
        uint64_t begin;
        uint64_t length;
    };

    mutable std::mutex mutex_;
    std::atomic<uint64_t> removals_{0};  // changed with mutex_ held
    std::atomic<uint64_t> invalidations_{0};  // likewise
    std::vector<std::atomic<uint64_t> *> published_;
    uint64_t next_id_ = 1;
    std::unordered_map<uint64_t, Range> ranges_;
};

}  // namespace gpushm
