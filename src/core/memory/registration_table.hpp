// SPDX-License-Identifier: BSD-3-Clause
// Which memory of this process peers may read and write by a transfer.
#pragma once

#include "core/memory/registration_list.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gpushm {

/** What makes copies into registered memory, or lets peers make them: a port. Called by the thread
 * that removes a registration, behind a fence (seq_cst), which may not be the one that uses the
 * port; one at a time. */
class RegistrationUser {
public:
    /** Whether a peer that lives writes by itself to a registration that has ended. */
    virtual bool is_written(uint64_t id) = 0;
    /** Ends, if the port is the calling thread's, the port's own copies to the registration, and
     * those to peers, which may wait for them in turn. */
    virtual void end_copies(uint64_t id) = 0;
    /** That was in vain: says of whom, and does not wait for what he writes now again. */
    virtual void stop_waiting(uint64_t id) = 0;

protected:
    ~RegistrationUser() = default;
};

/** A peer names memory by a registration's id and an address; nothing outside of a living
 * registration is ever touched for it. An id is never used again. Thread safe. */
class RegistrationTable {
public:
    static RegistrationTable &instance();

    /** The id; never 0. */
    uint64_t add(const void *address, size_t length);
    /** What peers read there by themselves from now on is not to count, and nothing is written
     * there for them any more: what is under way is ended, or waited for. Of a peer that lives and
     * does not end what it writes for 2 seconds (it was stopped, say) that is not so, which is
     * logged: a GPU copies on without it, for as long as the copy takes. */
    void remove(uint64_t id);

    /** What a registration covers; false when it does not exist. */
    bool find(uint64_t id, const void **address, size_t *length) const;

    /** Whether all of [address, address + length) lies in the registration. */
    bool covers(uint64_t id, uint64_t address, uint64_t length) const;

    /** Memory of a registration into which this process copies what a peer has sent: remove() waits
     * for its end. */
    class Use {
    public:
        Use() = default;
        Use(Use &&other) noexcept : table_(std::exchange(other.table_, nullptr)), id_(other.id_) {}
        Use &operator=(Use &&other) noexcept {
            std::swap(table_, other.table_);
            std::swap(id_, other.id_);
            return *this;
        }
        ~Use() { end(); }
        void end() {
            if (table_ != nullptr) {
                std::exchange(table_, nullptr)->end_use(id_);
            }
        }
        explicit operator bool() const { return table_ != nullptr; }

    private:
        friend RegistrationTable;
        Use(RegistrationTable *table, uint64_t id) : table_(table), id_(id) {}
        RegistrationTable *table_ = nullptr;  // null: none
        uint64_t id_ = 0;
    };
    /** None unless covers(). */
    Use use(uint64_t id, uint64_t address, uint64_t length);

    /** How often one was removed: while that stays, what was covered is. */
    uint64_t removals() const { return removals_.load(std::memory_order_acquire); }

    /** `*list`, of zeroes, is in memory that peers see: it is kept up to date until cancel(),
     * which empties it. Until then remove() asks `user`, the port whose mailbox that is. */
    void publish(RegistrationList *list, RegistrationUser *user = nullptr);
    void cancel(RegistrationList *list, RegistrationUser *user = nullptr);

private:
    struct Range {
        uint64_t begin;
        uint64_t length;
    };

    bool covers_locked(uint64_t id, uint64_t address, uint64_t length) const;
    bool take_out(uint64_t id);
    void end_use(uint64_t id);
    bool is_used(uint64_t id) const;
    bool is_written(uint64_t id);
    void await_writes(uint64_t id);
    size_t take_place();
    void set(size_t place, uint64_t id);

    mutable std::mutex mutex_;
    std::atomic<uint64_t> removals_{0};  // changed with mutex_ held
    std::vector<RegistrationList *> published_;
    std::vector<uint64_t> listed_;     // what the published lists hold, as far as they were used
    std::vector<size_t> free_places_;  // below listed_.size()
    size_t next_victim_ = 0;           // whose place is taken when none is free
    uint64_t added_ = 0;
    std::unordered_map<uint64_t, Range> ranges_;
    std::vector<uint64_t> uses_;  // ids; few at a time

    std::mutex users_mutex_;  // taken before mutex_
    std::vector<RegistrationUser *> users_;
};

}  // namespace gpushm
