// SPDX-License-Identifier: BSD-3-Clause
// Which memory of the owner of a mailbox a sender writes by itself, as the owner sees it.
#pragma once

#include "core/base/immovable.hpp"
#include "core/memory/registration_list.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace gpushm {

/** Registrations of a mailbox's owner that one sender writes through a mapping, without the owner.
 * It lies in that mailbox, one for each SenderRecord, and belongs to the record's holder. A place
 * holds an id while a write to that registration is under way, else 0.
 *
 * Only the holder writes it. It stores the id (relaxed), then a fence (seq_cst), then it looks at
 * the RegistrationList; it begins the write only if the registration exists. It stores 0 (release)
 * when the bytes of all writes to the registration are in the memory.
 *
 * Any thread of the owner reads it (acquire) after it has taken an id out of the RegistrationList,
 * behind a fence (seq_cst). One of the two fences comes first: either the holder sees that the
 * registration has ended, or the owner sees the id and waits until it is gone.
 *
 * The words of a dead holder do not count: its copies ended with it. A new holder stores zeroes
 * before the low bit of SenderRecord::owner. CellKind::close follows the last write: afterwards the
 * record may have another holder, so its words are left alone. A living holder that does not end a
 * write (it was stopped, or is broken) is waited for a bounded time. */
struct alignas(64) DirectWrites {
    static constexpr size_t kPlaces = 8;

    std::atomic<uint64_t> ids[kPlaces];

    void clear() {
        for (std::atomic<uint64_t> &id : ids) {
            id.store(0, std::memory_order_relaxed);
        }
    }
    bool contain(uint64_t id) const {
        for (const std::atomic<uint64_t> &place : ids) {
            if (place.load(std::memory_order_acquire) == id) {
                return true;
            }
        }
        return false;
    }
};

/** The side of the holder. One thread at a time. */
class DirectWriter : Immovable {
public:
    struct End {
        size_t place;
        void operator()(DirectWriter *writer) const { writer->end(place); }
    };
    /** A write under way; null: none. Must end before its DirectWriter. */
    using Hold = std::unique_ptr<DirectWriter, End>;

    DirectWriter(DirectWrites *words, const RegistrationList *registrations)
        : words_(words), registrations_(registrations) {}

    /** Whether there is a place for a write to this registration. If not, a write under way must
     * end first. */
    bool has_room(uint64_t registration) const {
        return find_place(registration) != DirectWrites::kPlaces;
    }

    /** Empty when the registration does not exist, or there is no room. */
    Hold begin(uint64_t registration) {
        const size_t place = find_place(registration);
        if (place == DirectWrites::kPlaces) {
            return nullptr;
        }
        ++counts_[place];
        ids_[place] = registration;
        words_->ids[place].store(registration, std::memory_order_relaxed);
        Hold hold(this, {place});
        std::atomic_thread_fence(std::memory_order_seq_cst);
        return registrations_->contains(registration) ? std::move(hold) : nullptr;
    }

    /** For a forked child, where the words are not mapped. */
    void forget() { words_ = nullptr; }

private:
    size_t find_place(uint64_t registration) const {
        size_t free = DirectWrites::kPlaces;
        for (size_t place = 0; place < DirectWrites::kPlaces; ++place) {
            if (counts_[place] == 0) {
                free = place;
            } else if (ids_[place] == registration) {
                return place;
            }
        }
        return free;
    }
    void end(size_t place) {
        if (--counts_[place] == 0 && words_ != nullptr) {
            words_->ids[place].store(0, std::memory_order_release);
        }
    }

    DirectWrites *words_;
    const RegistrationList *const registrations_;
    std::array<unsigned, DirectWrites::kPlaces> counts_ = {};  // of writes in each place
    std::array<uint64_t, DirectWrites::kPlaces> ids_ = {};     // the registration that they write
};

}  // namespace gpushm
