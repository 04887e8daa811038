// SPDX-License-Identifier: BSD-3-Clause
// The sending side of a connection's staging ring: messages and transfers go out in spans of it.
//
// An ahead pointer runs in front of what the peer may see: copies start into spans that are not
// published yet (Ji et al., "Efficient Intranode Communication in GPU-Accelerated Systems", IPDPSW
// 2012). RingReceiver has the other side.
#pragma once

#include "core/base/immovable.hpp"
#include "core/base/no_throw.hpp"
#include "core/shm/staging_ring.hpp"
#include "core/transport/gpu_ring.hpp"
#include "core/transport/operations.hpp"
#include "core/transport/outgoing_span.hpp"
#include "core/transport/peer_channel.hpp"
#include "core/transport/speculative_copies.hpp"
#include "core/transport/transfer_types.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace gpushm {

/** One thread at a time. */
class RingSender : Immovable {
public:
    RingSender(PeerChannel &channel, Operations &operations, ExportedMemory &exports)
        : channel_(channel), operations_(operations), gpu_ring_(channel, exports) {}

    // ---- the ring

    /** Whether the peer has neither been offered a ring nor refused one. */
    bool is_unknown() const { return state_ == State::none; }
    bool is_ready() const { return state_ == State::ready; }
    /** Whether the peer wrote nonsense into it. */
    bool is_broken() const { return ring_ && ring_->broken(); }
    /** Makes a ring near the GPU that will write it, and offers it to the peer. */
    void offer(const MemoryInfo &source);
    void receive_answer(const RingAnswer &answer);
    void receive_gpu_ring_answer(const GpuRingAnswer &answer);
    /** Gives both rings back; there is none from now on. */
    void drop();

    // ---- messages

    /** Bytes of the longest message. */
    size_t longest_message() const { return ring_->data_bytes() / 2; }
    /** Messages that a GPU still writes; none may overtake them. */
    bool has_messages() const { return messages_ != 0; }
    /** A span at the end of the ring, to be filled by at most so many copies of a GPU, while
     * `fill` is called for it; it is taken back unless that returns true. ok, no_resource,
     * gpu_error (`fill` returned false) or out_of_memory (it threw). */
    template <typename Fill>
    Status add_message(size_t length, const void *owner, size_t copies, Fill fill);
    unsigned char *data(const OutgoingSpan &out) { return ring_->data(out.span); }
    /** Starts a copy into the span; false when the driver refuses. */
    bool fill_by_gpu(OutgoingSpan &out, void *destination, const void *source, size_t length,
                     const MemoryInfo &gpu_side);

    // ---- transfers

    void add_put(const ChunkedTransfer &transfer);
    /** A reply of one chunk passes those that have several to go: its message may be short. */
    void add_reply(const ChunkedTransfer &transfer);
    /** A reply that another path has failed to carry. */
    void add_failed_reply(const ChunkedTransfer &transfer) { transfers_.push_back(transfer); }

    // ---- speculative copies

    SpeculativeCopies &speculation() { return speculation_; }
    /** SpeculativeCopies::plan(). */
    uint64_t plan_copy(const SpeculativeCopies::Plan &wanted);
    /** Begins what was planned, after its message was published. */
    void begin_planned_copy();
    /** The span that has what the peer asks for; null: none. */
    OutgoingSpan *find_copy(const GetRequest &request);
    /** The span goes out as the answer. */
    void answer_by_copy(OutgoingSpan &out, const GetRequest &request);
    /** The span goes out as a chunk of no transfer. */
    void give_up_copy(OutgoingSpan &out);

    // ---- progress and end

    /** Starts chunks of transfers; their number. */
    unsigned issue_chunks();
    /** Sends spans that are filled; their number. */
    unsigned publish();
    bool busy() const { return speculation_.are_under_way(spans_.size()) || !transfers_.empty(); }
    /** Waits for copies from an owner's memory; from everybody's with null. */
    void wait_for_copies(const void *owner);
    /** After wait_for_copies(). */
    void cancel(Operations::Cancellation &cancellation);
    /** After wait_for_copies(): drops what the peer has asked for. */
    void drop_replies();
    /** Drops all spans. */
    void forget_spans();
    /** Drops all spans and transfers. */
    void clear();

private:
    enum class State { none, offered, ready, refused };

    SpeculativeCopies::Ring describe_ring() const;
    OutgoingSpan &add_span(const RingSpan &span, const void *owner, CellKind kind, size_t copies);
    template <typename Fill>
    Status fill_span(const RingSpan &span, const void *owner, CellKind kind, size_t copies,
                     Fill fill);
    void drop_last_span();
    void give_up_copies();
    bool holds_front();

    /** A span for a chunk of `length` bytes. */
    struct NextChunk {
        RingSpan span;
        size_t length;
        bool in_gpu_ring;
    };
    std::optional<NextChunk> allocate_chunk(const ChunkedTransfer &transfer,
                                            const unsigned char *source, bool from_gpu);
    bool issue_ring_chunk(ChunkedTransfer &transfer);
    bool issue_slot_chunk(ChunkedTransfer &transfer);
    bool gpu_copies_chunk(const ChunkedTransfer &transfer) const;
    size_t chunk_bytes(const ChunkedTransfer &transfer, bool from_gpu) const;
    size_t gpu_ring_chunk_bytes(const ChunkedTransfer &transfer) const;
    bool is_one_chunk(const ChunkedTransfer &transfer) const;
    void count_leading();
    void drop_gpu_ring_if_unused();

    bool is_filled(OutgoingSpan &out);
    bool goes_in_cell(const OutgoingSpan &out) const;
    bool publish(OutgoingSpan &out);

    PeerChannel &channel_;
    Operations &operations_;
    State state_ = State::none;
    std::optional<StagingRingSender> ring_;
    GpuRing gpu_ring_;
    OutgoingSpans spans_;
    unsigned messages_ = 0;  // among spans_
    std::deque<ChunkedTransfer> transfers_;
    size_t leading_ = 0;  // transfers of one chunk each, in front of all others
    SpeculativeCopies speculation_;
};

/** add_message(), of a span that is allocated. */
template <typename Fill>
Status RingSender::fill_span(const RingSpan &span, const void *owner, CellKind kind, size_t copies,
                             Fill fill) {
    const size_t spans = spans_.size();
    bool filled = false;
    const bool tried = as_possible([&] { filled = fill(add_span(span, owner, kind, copies)); });
    if (filled) {
        return Status::ok;
    }
    if (spans_.size() != spans) {
        drop_last_span();
    } else {
        ring_->give_back(span);
    }
    return tried ? Status::gpu_error : Status::out_of_memory;
}

template <typename Fill>
Status RingSender::add_message(size_t length, const void *owner, size_t copies, Fill fill) {
    const std::optional<RingSpan> span = ring_->allocate(length);
    if (!span) {
        give_up_copies();
        return Status::no_resource;
    }
    const Status status = fill_span(*span, owner, CellKind::am_ring, copies, fill);
    messages_ += status == Status::ok ? 1 : 0;
    return status;
}

}  // namespace gpushm
