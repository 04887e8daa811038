// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/speculative_copies.hpp"

#include <algorithm>
#include <utility>

namespace gpushm {
namespace {

// A longer copy does not gain much, and takes room in the ring. Where two CPUs copy, chunks that
// both copy at the same time are there as soon.
constexpr size_t kLongest = 64u << 10;
constexpr size_t kLongestToHost = 32u << 10;
// Of a message that is alone, in one chunk; a window of such messages would fill the ring.
constexpr size_t kLongestAlone = 256u << 10;
constexpr size_t kLongestManaged = 512u << 10;

// So many small gets in a row through the ring make the next one likely.
constexpr unsigned kMinStagedGets = 2;

// Copies that wait for a request: as many as there were gets before, because a peer that does not
// ask wastes them.
constexpr unsigned kMaxWaiting = 64;

// After so many messages without a request the peer has another path, such as a mapping.
constexpr unsigned kMinUnasked = 256;

/** Nothing may read memory that is freed, and the sender's message may end without a request. The
 * engine drops copies that it has not given to the driver by then (CopyJob::source_may_go). */
bool free_waits_for_copies(const MemoryInfo &info) {
    return info.kind == MemoryKind::managed || info.is_of_mem_alloc();
}

}  // namespace

bool SpeculativeCopies::are_likely(bool by_gpu) const {
    return staged_gets_[by_gpu] >= kMinStagedGets;
}

size_t SpeculativeCopies::usual_bytes(bool by_gpu) const {
    return by_gpu || peer_gets_to_gpu_ ? kLongest : kLongestToHost;
}

size_t SpeculativeCopies::longest_bytes(const MemoryInfo &source, bool by_gpu,
                                        const Ring &ring) const {
    const size_t usual = usual_bytes(by_gpu);
    if (!by_gpu || !ring.is_idle) {
        return usual;
    }
    const size_t alone = source.kind == MemoryKind::managed ? kLongestManaged : kLongestAlone;
    const size_t others = peer_gets_to_gpu_ ? ring.gpu_ring_bytes - 1 : SIZE_MAX;
    return std::max(usual, std::min({alone, ring.gpu_chunk_bytes, others}));
}

bool SpeculativeCopies::suits(const Plan &wanted, const Ring &ring) const {
    return wanted.length <= longest_bytes(wanted.info, wanted.by_gpu, ring) &&
           (wanted.by_gpu ? free_waits_for_copies(wanted.info)
                          : ring.is_idle && !ring.has_transfers);
}

uint64_t SpeculativeCopies::plan(const Plan &wanted, const Ring &ring) {
    if (waiting_.count >= staged_gets_[wanted.by_gpu] ||
        waiting_.bytes + wanted.length > ring.bytes / 2) {
        ++unasked_;
        return 0;
    }
    planned_ = wanted;
    planned_->number = ++last_number_;
    return last_number_;
}

bool SpeculativeCopies::is_ignored() const {
    return unasked_ >= kMinUnasked;
}

std::optional<SpeculativeCopies::Plan> SpeculativeCopies::take_plan() {
    return std::exchange(planned_, std::nullopt);
}

void SpeculativeCopies::add_waiting(size_t length) {
    ++waiting_.count;
    waiting_.bytes += length;
    waiting_.copying = true;
}

void SpeculativeCopies::stop_waiting(OutgoingSpan &out) {
    out.speculative_copy = 0;
    --waiting_.count;
    waiting_.bytes -= out.span.length;
    waiting_.copying &= waiting_.count != 0;
    unasked_ = 0;
}

bool SpeculativeCopies::hold(OutgoingSpans &spans) {
    OutgoingSpan &front = spans.front();
    if (front.speculative_copy == 0) {
        return false;
    }
    if (spans.size() != waiting_.count) {
        give_up(front);
        return false;
    }
    return true;
}

void SpeculativeCopies::give_up(OutgoingSpan &out) {
    if (out.speculative_copy != 0) {
        stop_waiting(out);
        out.copy_failed = true;
        staged_gets_[out.by_gpu] = 0;
    }
}

bool SpeculativeCopies::give_up_all(OutgoingSpans &spans) {
    if (waiting_.count == 0) {
        return false;
    }
    for (OutgoingSpan &out : spans) {
        give_up(out);
    }
    return true;
}

void SpeculativeCopies::count_staged_get(bool by_gpu) {
    staged_gets_[by_gpu] = std::min(staged_gets_[by_gpu] + 1, kMaxWaiting);
}

}  // namespace gpushm
