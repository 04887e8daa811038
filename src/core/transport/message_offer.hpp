// SPDX-License-Identifier: BSD-3-Clause
// A short message of GPU memory that its receiver may copy at once, and whose sender need not wait
// for that.
#pragma once

#include "core/base/immovable.hpp"
#include "core/copy/engine_pool.hpp"
#include "core/copy/row_views.hpp"
#include "core/memory/memory_info.hpp"
#include "core/pinning/device_buffer_pool.hpp"
#include "core/shm/offered_message.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace gpushm {

/** The OfferedMessages of a port. Thread safe; outlives the port. */
class OfferPlaces : Immovable {
public:
    explicit OfferPlaces(OfferedMessage *first) : first_(first) {}

    /** Opens a place that is free; none when all are taken. */
    OfferUse open();
    /** Ends a use that open() returned. */
    void end(const OfferUse &use);
    OfferedMessage &at(const OfferUse &use) const { return first_[use.index]; }
    /** The port closes, and its mailbox is not mapped any more. */
    void forget_memory();

private:
    std::mutex mutex_;  // of all that follows, but at() needs none while its message is offered
    OfferedMessage *first_;
    uint32_t in_use_ = 0;  // a bit for each
    uint32_t last_id_ = 0;
    static_assert(kOfferedMessages == 32, "a bit for each");
};

/** The message of a sender, from before UCP is called until UCP has completed it. UCP knows it as
 * block() in GPU memory, which stands for the program's rows (RowViews). UCP's threads call open();
 * all else is called by the thread that made it, until detach() has returned true. */
class MessageOffer : Immovable {
public:
    static constexpr size_t kMostBytes = OfferedMessage::kBytes;

    /** `rows`: of at most kMostBytes in all, in memory of `info` that peers can map.
     * `make_progress` is called while detach() and take_back() wait; it receives other messages,
     * and UCP may complete this one. Null: there is no memory, or kOfferedMessages are under way.
     */
    static std::unique_ptr<MessageOffer> create(const StridedRows &rows, const MemoryInfo &info,
                                                void (*make_progress)());
    ~MessageOffer();

    const void *block() const { return block_.address(); }

    /** For the remote key of [address, +length): the use that permits the receiver to copy the rows
     * of the message whose block lies there. Null `places`: it is not a message of a port that
     * packs the key. Empty: no block lies there. None: the receiver must get the block. */
    static std::optional<OfferUse> open(const void *address, size_t length,
                                        const std::shared_ptr<OfferPlaces> *places);

    // Each returns true when the program may use its memory.
    /** Copies the message, unless the receiver claims it meanwhile. True: the receiver finds the
     * message without this process, or else in the block. False: is_read() or take_back() follow,
     * or UCP has to complete the message, because it reads the rows, or the GPU failed, logged. */
    bool detach();
    /** Behind a detach() that returned false: the receiver has read the message. */
    bool is_read();
    /** As detach(), for a message whose receiver has claimed it, but does not make progress. */
    bool take_back();

private:
    MessageOffer(const StridedRows &rows, const MemoryInfo &info, void (*make_progress)());
    bool is_offered();
    OfferedMessage &place() const { return places_->at(use_); }
    bool is_claimed() const;
    bool is_claimed_soon() const;
    bool try_detach();
    bool try_take_back();
    bool copy_to_place(bool also_if_claimed);
    bool copy_again();
    bool end_copy();

    const StridedRows rows_;
    const MemoryInfo info_;  // of the rows
    void (*const make_progress_)();
    const DeviceBlock block_;
    const uint64_t block_id_;              // MemoryInfo::buffer_id
    std::shared_ptr<OfferPlaces> places_;  // of use_
    OfferUse use_;                         // protected by the lock of all offers until is_offered()
    bool may_open_ = true;                 // the same
    bool is_copied_ = false;               // to the place
    bool has_failed_ = false;              // the copy, and its end may not be known
    CopyTicket copy_;                      // under way, to the place
    std::optional<BorrowedEngine> engine_;  // of copy_
};

}  // namespace gpushm
