// SPDX-License-Identifier: BSD-3-Clause
#include "core/shm/staging_ring.hpp"

#include "core/base/log.hpp"

#include <cstdint>

namespace gpushm {
namespace {

constexpr uint64_t kMagic = 0x676e697268737067ull;

// The start of every span is aligned: GPU copies of aligned addresses are the fast ones.
constexpr uint64_t kSpanAlignment = 256;

uint64_t align_up(uint64_t value) {
    return (value + kSpanAlignment - 1) & ~(kSpanAlignment - 1);
}

}  // namespace

std::optional<StagingRingSender> StagingRingSender::create(size_t data_bytes, int numa_node) {
    if (data_bytes == 0 || data_bytes > SIZE_MAX / 2) {
        GPUSHM_LOG(warn, "a staging ring of %zu bytes cannot be: set UCX_GPUSHM_RING_SIZE",
                   data_bytes);
        return std::nullopt;
    }
    std::optional<Segment> segment =
        Segment::create("gpushm-ring", kDataOffset + data_bytes, numa_node);
    if (!segment) {
        return std::nullopt;
    }
    auto *header = reinterpret_cast<RingHeader *>(segment->data());
    header->magic = kMagic;
    header->data_bytes = segment->length() - kDataOffset;
    header->cookie = Cookie::random();
    return StagingRingSender(std::move(*segment));
}

std::optional<RingSpan> StagingRingSender::allocate(size_t length) {
    const size_t bytes = data_bytes();
    if (length == 0 || length > bytes / 2 || broken_) {
        return std::nullopt;
    }
    uint64_t position = align_up(write_);
    if (position % bytes + length > bytes) {
        position += bytes - position % bytes;
    }
    if (position + length - released_ > bytes) {
        const uint64_t released = header()->released.load(std::memory_order_acquire);
        if (released < released_ || released > write_) {
            broken_ = true;
            return std::nullopt;
        }
        released_ = released;
        if (position + length - released_ > bytes) {
            return std::nullopt;
        }
    }
    write_ = position + length;
    return RingSpan{position, length};
}

std::optional<StagingRingReceiver> StagingRingReceiver::attach(pid_t pid, int segment_fd,
                                                               const Cookie &cookie,
                                                               const char **why) {
    std::optional<Segment> segment =
        Segment::attach(pid, segment_fd, kDataOffset + kSpanAlignment, why);
    if (!segment) {
        return std::nullopt;
    }
    const auto *header = reinterpret_cast<const RingHeader *>(segment->data());
    if (header->magic != kMagic || !(header->cookie == cookie) ||
        header->data_bytes != segment->length() - kDataOffset) {
        *why = "it is not the staging ring that was offered";
        return std::nullopt;
    }
    return StagingRingReceiver(std::move(*segment));
}

unsigned char *StagingRingReceiver::open(const RingSpan &span) {
    const size_t bytes = data_bytes();
    // Behind the spans before it, and not on top of what this side has not given back.
    if (span.length == 0 || span.length > bytes || span.position % bytes + span.length > bytes ||
        span.position < opened_ || span.position - released_ > bytes - span.length) {
        return nullptr;
    }
    opened_ = span.position + span.length;
    open_spans_.push_back({opened_, false});
    return at(span.position);
}

void StagingRingReceiver::close(const RingSpan &span) {
    for (OpenSpan &open : open_spans_) {
        if (open.end == span.position + span.length) {
            open.closed = true;
            break;
        }
    }
    const uint64_t before = released_;
    while (!open_spans_.empty() && open_spans_.front().closed) {
        released_ = open_spans_.front().end;
        open_spans_.pop_front();
    }
    if (released_ != before) {
        header()->released.store(released_, std::memory_order_release);
    }
}

}  // namespace gpushm
