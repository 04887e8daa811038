// SPDX-License-Identifier: BSD-3-Clause
// Head starts. A rendezvous of GPU memory that goes through the ring has three steps, of which the
// first copy alone takes 7 us:
//
//   sender     "I have n bytes at a"  ->  receiver
//   sender    <-   get_request            receiver          1 to 2 us until here
//   sender     copy into the ring, chunk  ->  receiver
//
// Where the last small gets of a link went through the ring, the next one most likely does too.
// Then the copy begins with the first step, into a span that waits for its request and goes out as
// soon as both are there. The same for host memory that a GPU gets, which the CPU copies, 0.1 us a
// KB; but only for a message that is alone: in a window the CPU has no time for it (16 KiB: 3.9
// instead of 3.3 us a message). Nor where our GPU can push it (link_direct.cpp), which is seen when
// the request comes.
//
// A span that nobody asks for goes out as a chunk of no transfer when another one behind it wants
// to, or finds no room: the order of the ring is kept, and nothing ever waits for a request.
//
// A head start is told by a number that only its own message carries, so a request never gets what
// an earlier message found at the same address.
#include "core/transport/link.hpp"

#include "core/base/no_throw.hpp"
#include "core/memory/memory_query.hpp"
#include "core/transport/port.hpp"

#include <algorithm>
#include <cstring>

namespace gpushm {
namespace {

// A larger one does not gain much, and takes room in the ring. Where two CPUs copy, chunks that
// both copy at the same time are there as soon (64 KiB 4.2 us instead of 4.8).
constexpr size_t kLongestHeadStart = 64u << 10;
constexpr size_t kLongestHeadStartToHost = 32u << 10;
// Of a message that is alone; a window of such would fill the ring. In one chunk.
constexpr size_t kLongestHeadStartAlone = 256u << 10;
constexpr size_t kLongestManagedHeadStart = 512u << 10;

// So many small gets in a row through the ring make the next one likely.
constexpr unsigned kMinStagedGets = 2;

// Head starts that wait for a request; as many as there were gets before, since a peer that does
// not ask wastes them.
constexpr unsigned kMaxHeadStarts = 64;

// So many messages without a request for any of them: the peer has another way now, such as a
// mapping.
constexpr unsigned kMinUnasked = 256;

thread_local Link *link_that_packs = nullptr;

/** Nothing may read memory that is not there any more, and the sender's message may end without a
 * request. Copies that are submitted only afterwards the engine drops (CopyJob::source_may_go). */
bool free_waits_for_copies(const MemoryInfo &info) {
    return info.kind == MemoryKind::managed || info.is_of_mem_alloc();
}

}  // namespace

bool Link::head_start_is_likely() const {
    return (staged_gets_[false] >= kMinStagedGets || staged_gets_[true] >= kMinStagedGets) &&
           ring_state_ == RingState::ready;
}

Link *Link::packing() {
    return link_that_packs;
}

size_t Link::pack_with_plan(Pack pack, void *destination, void *argument) {
    link_that_packs = this;
    const size_t length = pack(destination, argument);
    link_that_packs = nullptr;
    return length;
}

size_t Link::usual_head_start(bool by_gpu) const {
    return by_gpu || peer_gets_to_gpu_ ? kLongestHeadStart : kLongestHeadStartToHost;
}

size_t Link::longest_head_start(const MemoryInfo &source, bool by_gpu) const {
    const size_t usual = usual_head_start(by_gpu);
    if (!by_gpu || !outgoing_spans_.empty()) {
        return usual;
    }
    const size_t alone =
        source.kind == MemoryKind::managed ? kLongestManagedHeadStart : kLongestHeadStartAlone;
    return std::max(usual, std::min(alone, port_.config().gpu_chunk_bytes));
}

uint64_t Link::plan_head_start(const void *address, size_t length, bool by_gpu) {
    const unsigned gets_before = staged_gets_[by_gpu];
    if (planned_ || length == 0 || gets_before < kMinStagedGets) {
        return 0;
    }
    const MemoryInfo info = query_memory(address);
    const bool usual = length <= longest_head_start(info, by_gpu) &&
                       (by_gpu ? free_waits_for_copies(info)
                               : outgoing_spans_.empty() && streams_.empty() &&
                                     !is_for_push(info, address, length));
    if (!usual) {
        return 0;
    }
    if (waiting_.count >= gets_before || waiting_.bytes + length > tx_ring_->data_bytes() / 2) {
        if (++unasked_ >= kMinUnasked) {
            give_up_head_starts();
        }
        return 0;
    }
    planned_ = {++last_head_start_, static_cast<const unsigned char *>(address), length, info,
                by_gpu};
    return last_head_start_;
}

/** Without one the request is answered as any other, so nothing that fails here matters. */
void Link::begin_head_start() {
    const HeadStart plan = *planned_;
    planned_.reset();
    const std::optional<RingSpan> span = tx_ring_->allocate(plan.length);
    if (!span) {
        return;
    }
    bool has_span = false;
    bool filled = false;
    as_possible([&] {
        OutgoingSpan &out = add_span(*span, nullptr, CellKind::chunk_ring, 1);
        has_span = true;
        filled = fill_head_start(out, plan);
    });
    if (!has_span) {
        tx_ring_->give_back(*span);
    } else if (!filled) {
        drop_last_span();
    } else {
        ++waiting_.count;
        waiting_.bytes += plan.length;
        waiting_.copying = true;
        port_.activate(*this);
    }
}

/** False when the copy could not be started. */
bool Link::fill_head_start(OutgoingSpan &out, const HeadStart &plan) {
    out.head_start = plan.number;
    out.source = plan.source;
    out.by_gpu = plan.by_gpu;
    out.chunk.is_reply = 1;
    if (plan.by_gpu) {
        return fill_by_gpu(out, tx_ring_->data(out.span), plan.source, plan.length, plan.info);
    }
    memcpy(tx_ring_->data(out.span), plan.source, plan.length);
    return true;
}

/** Whether the bytes that a peer asks for are on their way already. */
bool Link::claim_head_start(const GetRequest &request) {
    if (request.head_start == 0) {
        return false;
    }
    const auto out = std::find_if(
        outgoing_spans_.begin(), outgoing_spans_.end(),
        [&](const OutgoingSpan &candidate) { return candidate.head_start == request.head_start; });
    if (out == outgoing_spans_.end() || out->copy_failed || out->span.length != request.length ||
        reinterpret_cast<uint64_t>(out->source) != request.address) {
        return false;
    }
    const bool pushed = !out->by_gpu && request.length >= kSmallestHostCopy &&
                        start_push(reply_stream(request), request);
    const bool for_both = out->by_gpu && request.shared.exists() &&
                          same_gpu(request.buffer, query_memory(out->source)) &&
                          copies_for_both(request.buffer);
    if (pushed || for_both) {
        // Not through the ring: a GPU is quicker; or the peer's copy out of it would wait for a
        // time slice.
        give_up_head_start(*out);
        port_.activate(*this);
        publish_spans();
        return pushed;
    }
    stop_waiting(*out);
    note_source(*out, request.registration);
    out->chunk.transfer_id = request.transfer_id;
    out->chunk.total = request.length;
    if (request.length <= usual_head_start(out->by_gpu)) {
        count_staged_get(out->by_gpu);
    }
    port_.activate(*this);
    publish_spans();
    return true;
}

/** For the next one: a get goes through the ring. */
void Link::count_staged_get(bool by_gpu) {
    staged_gets_[by_gpu] = std::min(staged_gets_[by_gpu] + 1, kMaxHeadStarts);
}

/** True while the span at the front of the ring waits for its request. Not when something behind
 * it is to go out: then nobody gets it any more. */
bool Link::hold_head_start(OutgoingSpan &front) {
    if (front.head_start == 0) {
        return false;
    }
    if (outgoing_spans_.size() != waiting_.count) {
        give_up_head_start(front);
        return false;
    }
    bool filled = true;
    for (OutgoingSpan &out : outgoing_spans_) {
        filled &= is_filled(out);
    }
    waiting_.copying = !filled;
    return true;
}

/** Its span goes out as a chunk of no transfer; the next ones are not likely to be asked for
 * either. */
void Link::give_up_head_start(OutgoingSpan &out) {
    if (out.head_start != 0) {
        stop_waiting(out);
        out.copy_failed = true;
        staged_gets_[out.by_gpu] = 0;
    }
}

/** Of all that wait: nobody can tell when they are asked for, and others wait for their room. */
void Link::give_up_head_starts() {
    if (waiting_.count == 0) {
        return;
    }
    for (OutgoingSpan &out : outgoing_spans_) {
        give_up_head_start(out);
    }
    port_.activate(*this);
}

void Link::stop_waiting(OutgoingSpan &out) {
    out.head_start = 0;
    --waiting_.count;
    waiting_.bytes -= out.span.length;
    waiting_.copying &= waiting_.count != 0;
    unasked_ = 0;
}

}  // namespace gpushm
