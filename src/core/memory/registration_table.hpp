// SPDX-License-Identifier: BSD-3-Clause
// The memory of this process that peers may read and write by a transfer.
#pragma once

#include "core/memory/registration_list.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace gpushm {

/** An object that copies into registered memory, or lets peers copy: a port. The thread that
 * removes a registration calls it, behind a fence (seq_cst); that thread may not be the one that
 * uses the port. One call at a time. */
class RegistrationUser {
public:
    /** Whether a living peer writes by itself to a registration that has ended. */
    virtual bool is_written(uint64_t id) = 0;
    /** If the calling thread uses the port: ends the port's own copies to the registration, and its
     * copies to peers, because peers may wait for those in turn. */
    virtual void end_copies(uint64_t id) = 0;
    /** The wait was in vain: logs which peers it was for, and does not wait again for what they
     * write now. */
    virtual void stop_waiting(uint64_t id) = 0;

protected:
    ~RegistrationUser() = default;
};

/** A peer names memory by the id of a registration and an address. Nothing outside of an existing
 * registration is ever touched for a peer. An id is never used again. Thread safe. */
class RegistrationTable {
public:
    static RegistrationTable &instance();

    /** Returns the id; never 0. */
    uint64_t add(const void *address, size_t length);
    /** Peers must not count what they read there by themselves from now on, and nothing is written
     * there for them any more: copies that are under way are ended or waited for. If a living peer
     * does not end its write for 2 seconds (because it was stopped, say), this is logged and the
     * write may go on: a GPU copies on by itself, for as long as the copy takes. */
    void remove(uint64_t id);

    /** Whether all of [address, address + length) lies in the registration. */
    bool covers(uint64_t id, uint64_t address, uint64_t length) const;

    struct EndUse {
        uint64_t id;
        void operator()(RegistrationTable *table) const { table->end_use(id); }
    };
    /** A copy of this process into a registration, of what a peer has sent: remove() waits for its
     * end. Null: none. */
    using Use = std::unique_ptr<RegistrationTable, EndUse>;
    /** Null unless covers(). */
    Use use(uint64_t id, uint64_t address, uint64_t length);

    /** How many registrations were removed. While it does not change, what was covered is
     * covered. */
    uint64_t removals() const { return removals_.load(std::memory_order_acquire); }

    /** `*list`, which is all zeroes, lies in memory that peers see. It is kept up to date until
     * cancel(), which empties it. Until then remove() asks `user`, the port whose mailbox has the
     * list. */
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
    std::vector<uint64_t> listed_;     // what the published lists hold in the places used so far
    std::vector<size_t> free_places_;  // below listed_.size()
    size_t next_victim_ = 0;           // the place that is taken when none is free
    uint64_t added_ = 0;
    std::unordered_map<uint64_t, Range> ranges_;
    std::vector<uint64_t> uses_;  // ids; few at a time

    std::mutex users_mutex_;  // taken before mutex_
    std::vector<RegistrationUser *> users_;
};

}  // namespace gpushm
