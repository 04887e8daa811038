// SPDX-License-Identifier: BSD-3-Clause
// The staging ring: memory for payload on its way from one process to one other.
//
// Each direction of a pair has one segment, which the sender makes when it first needs it:
// RingHeader (one page), then the data.
//
// The ring carries no descriptions: the sender says in a mailbox cell which span it has filled, so
// there is one way of notification. Positions count bytes since the ring was made; with 64 bits
// they never wrap in practice. A span lies at its position modulo the length of the data and never
// crosses the end of the data.
#pragma once

#include "core/base/process.hpp"
#include "core/shm/segment.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

namespace gpushm {

struct RingHeader {
    // Constant: the sender writes them once, before it offers the ring.
    uint64_t magic;
    uint64_t data_bytes;
    Cookie cookie;

    /** The receiver has used every byte before this position. Only the receiver writes it
     * (store-release), and never decreases it. The sender reads it (acquire) and checks that it
     * lies between the last value and what the sender has handed out. A receiver that dies leaves
     * it as it is: the sender gives up the connection and the ring. */
    alignas(64) std::atomic<uint64_t> released;
};

/** A stretch of the ring, as it travels in a cell. */
struct RingSpan {
    uint64_t position = 0;
    uint64_t length = 0;  // bytes, > 0
};

/** The memory of a ring, as both sides see it. */
class RingMemory {
public:
    size_t data_bytes() const { return segment_.length() - kDataOffset; }
    /** Where a span lies from the beginning of the data, in bytes. */
    uint64_t offset(const RingSpan &span) const { return span.position % data_bytes(); }

protected:
    static constexpr size_t kDataOffset = 4096;
    static_assert(sizeof(RingHeader) <= kDataOffset, "the header fits in front of the data");

    explicit RingMemory(Segment segment) : segment_(std::move(segment)) {}
    RingHeader *header() const { return reinterpret_cast<RingHeader *>(segment_.data()); }
    unsigned char *at(uint64_t position) const {
        return segment_.data() + kDataOffset + position % data_bytes();
    }

    Segment segment_;
};

/** The sender's side. One thread at a time. */
class StagingRingSender : public RingMemory {
public:
    /** Empty, logged, when there is no memory. `data_bytes` is rounded up to pages, which lie on
     * `numa_node` if possible. */
    static std::optional<StagingRingSender> create(size_t data_bytes, int numa_node = kAnyNumaNode);

    int segment_fd() const { return segment_.fd(); }
    /** The receiver has attached: the descriptor is not needed any more. */
    void close_segment_fd() { segment_.close_fd(); }
    Cookie cookie() const { return header()->cookie; }

    /** The next span of exactly `length` bytes, > 0 and at most data_bytes / 2. Empty while the
     * receiver has not released enough. Spans must be published in the order in which they were
     * allocated. */
    std::optional<RingSpan> allocate(size_t length);
    unsigned char *data(const RingSpan &span) const { return at(span.position); }
    bool is_newest(const RingSpan &span) const { return span.position + span.length == write_; }
    /** Gives the newest span back unpublished. */
    void give_back(const RingSpan &span) { write_ = span.position; }
    /** The receiver wrote nonsense into `released`; the ring must not be used any more. */
    bool broken() const { return broken_; }

private:
    explicit StagingRingSender(Segment segment) : RingMemory(std::move(segment)) {}

    uint64_t write_ = 0;     // position of the next span
    uint64_t released_ = 0;  // the last checked value of RingHeader::released
    bool broken_ = false;
};

/** The receiver's side. One thread at a time. */
class StagingRingReceiver : public RingMemory {
public:
    /** Maps the ring of process `pid`; empty, with the reason in `*why`, when that fails. */
    static std::optional<StagingRingReceiver> attach(pid_t pid, int segment_fd,
                                                     const Cookie &cookie, const char **why);

    /** Marks a span as in use and returns its memory; null when the span is not possible: each must
     * begin at or after the end of the one before, and end before it reaches one that is still in
     * use. */
    unsigned char *open(const RingSpan &span);

    /** The span is not needed any more. Spans may be closed in any order; the sender gets the
     * memory back when all earlier spans are closed too. */
    void close(const RingSpan &span);

private:
    struct OpenSpan {
        uint64_t end;
        bool closed;
    };

    explicit StagingRingReceiver(Segment segment) : RingMemory(std::move(segment)) {}

    uint64_t opened_ = 0;    // end of the newest span
    uint64_t released_ = 0;  // what RingHeader::released says
    std::deque<OpenSpan> open_spans_;
};

}  // namespace gpushm
