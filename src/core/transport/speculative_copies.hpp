// SPDX-License-Identifier: BSD-3-Clause
// Copies into the staging ring that begin before the peer asks for them.
//
// A rendezvous of GPU memory that goes through the ring has three steps:
//
//   sender     "I have n bytes at a"      ->  receiver
//   sender    <-   get_request                receiver
//   sender     copy into the ring, chunk  ->  receiver
//
// Where the last small gets of a connection went through the ring, the next one most likely does
// too. Then the copy begins with the first step, into a span that waits for its request. It goes
// out as soon as both are there. Host memory that a GPU of the peer gets is copied likewise by the
// CPU, but only for a message that is alone: in a window of messages the CPU has no time for it.
// Nothing is copied where a GPU of this process can push it, which is seen when the request comes.
//
// A span that nobody asks for goes out as a chunk of no transfer when another one behind it is to
// go out or finds no room. So the order of the ring is kept, and nothing ever waits for a request.
//
// A speculative copy has a number that only its own message carries. So a request never gets what
// an earlier message found at the same address.
//
// doc/decisions/speculative-copies.md has the measurements.
#pragma once

#include "core/memory/memory_info.hpp"
#include "core/transport/outgoing_span.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpushm {

/** Decides which copies are speculative, and counts those that wait for a request. The spans belong
 * to the caller. One thread at a time. */
class SpeculativeCopies {
public:
    /** A copy that begins when its message is published. */
    struct Plan {
        uint64_t number;
        const unsigned char *source;
        size_t length;
        MemoryInfo info;
        bool by_gpu;
    };

    /** What the ring is like when a copy is planned. */
    struct Ring {
        size_t bytes;            // of its data
        bool is_idle;            // no span is on its way
        bool has_transfers;      // chunked ones that are not all copied
        size_t gpu_chunk_bytes;  // PortConfig
        size_t gpu_ring_bytes;   // GpuRing::shortest()
    };

    /** Whether some get that follows is likely to go through the ring. */
    bool are_likely(bool by_gpu) const;

    bool has_plan() const { return planned_.has_value(); }
    /** Whether the memory that a message tells the peer of may be copied. */
    bool suits(const Plan &wanted, const Ring &ring) const;
    /** Plans a copy that suits; its number. 0: too much waits. */
    uint64_t plan(const Plan &wanted, const Ring &ring);
    std::optional<Plan> take_plan();
    /** Whether the peer does not ask for what waits: give_up_all() is due. */
    bool is_ignored() const;

    /** The copy of a plan has begun, into a span that waits. */
    void add_waiting(size_t length);
    /** The span has been asked for, or is given up. */
    void stop_waiting(OutgoingSpan &out);
    /** True while the span at the front waits. Not when something behind it is to go out: then it
     * is given up. */
    bool hold(OutgoingSpans &spans);
    /** Its span goes out as a chunk of no transfer. The next ones are not likely either. */
    void give_up(OutgoingSpan &out);
    /** Gives up all spans; whether there were any. */
    bool give_up_all(OutgoingSpans &spans);
    /** After the spans were dropped. */
    void forget() { waiting_ = {}; }

    /** Whether all waiting spans are filled; if not, GPU copies are still running. */
    void note_filled(bool all) { waiting_.copying = !all; }
    /** Whether something will happen to so many spans without a request of the peer. */
    bool are_under_way(size_t spans) const { return waiting_.copying || spans != waiting_.count; }

    /** A get goes through the ring. */
    void count_staged_get(bool by_gpu);
    /** What the peer asked for last goes to a GPU, or to host memory. */
    void note_request(bool to_gpu) { peer_gets_to_gpu_ = to_gpu; }

    /** Bytes of the longest copy of a message among others. */
    size_t usual_bytes(bool by_gpu) const;
    /** Bytes of the longest copy there is now. */
    size_t longest_bytes(const MemoryInfo &source, bool by_gpu, const Ring &ring) const;

private:
    /** The spans that nobody has asked for. */
    struct Waiting {
        size_t count = 0;
        uint64_t bytes = 0;
        bool copying = false;  // some may still be filled
    };

    std::optional<Plan> planned_;
    uint64_t last_number_ = 0;
    unsigned staged_gets_[2] = {};  // small gets in a row, of memory that the CPU, a GPU copies
    unsigned unasked_ = 0;  // messages without a copy, for want of room, since the last request
    bool peer_gets_to_gpu_ = false;
    Waiting waiting_;
};

}  // namespace gpushm
