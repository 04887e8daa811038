// SPDX-License-Identifier: BSD-3-Clause
#include "point_to_point.hpp"

#include "staged_way.hpp"

#include <algorithm>

namespace gpushm::perf {
namespace {

std::vector<PageRange> pages_of(const std::vector<Message> &messages) {
    std::vector<PageRange> pages;
    for (const Message &message : messages) {
        pages.push_back({message.address, message.bytes});
    }
    return pages;
}

}  // namespace

PointToPoint::PointToPoint(const Cell &cell, Ranks &ranks, const Driver *driver, size_t piece_bytes)
    : cell_(cell), ranks_(ranks), driver_(driver), piece_bytes_(piece_bytes) {
    if (cell.is_placed()) {
        placed_ = std::make_unique<PlacedBuffers>(
            *driver, is_sender() ? cell.sender_on_gpu() : cell.receiver_on_gpu());
    }
}

MemoryType PointToPoint::type_of(MemoryKind kind) const {
    MemoryType type;
    type.kind = cell_.situation == Situation::unmapped && kind == MemoryKind::device
                    ? MemoryKind::unmappable
                    : kind;
    type.renewed = cell_.situation == Situation::cold;
    type.separate = cell_.situation == Situation::rotating;
    return type;
}

std::unique_ptr<MessageWay> PointToPoint::make_way() const {
    if (!cell_.is_staged()) {
        return std::make_unique<DirectWay>(ranks_);
    }
    const bool in_pieces = cell_.situation == Situation::staged_pipelined;
    return std::make_unique<StagedWay>(
        ranks_, *driver_,
        StagedWay::Shape{is_device_memory(cell_.from), is_device_memory(cell_.to), slots_ * size_,
                         size_, in_pieces ? piece_bytes_ : 0});
}

void PointToPoint::prepare(size_t size) {
    size_ = size;
    slots_ = std::min(messages(), slots_of(size));
    // Those of the size before are freed first.
    way_.reset();
    source_.reset();
    destination_.reset();
    const size_t pool = slots_ * stride_of(size);
    if (sends()) {
        source_ = std::make_unique<MessageBuffers>(driver_, type_of(cell_.from), pool);
        source_->prepare(size, slots_);
    }
    if (receives()) {
        destination_ = std::make_unique<MessageBuffers>(driver_, type_of(cell_.to), pool);
        destination_->prepare(size, slots_);
    }
    way_ = make_way();
}

void PointToPoint::renew_contents() {
    ++contents_;
    if (source_) {
        source_->prepare(size_, slots_);
        source_->prepare_source(seed_of(ranks_.rank()));
    }
    if (destination_) {
        destination_->prepare(size_, slots_);
        destination_->prepare_destination();
    }
    sent_ = messages_in(source_);
    received_ = messages_in(destination_);
    if (placed_) {
        placed_->use(pages_of(sent_), pages_of(received_));
    }
}

void PointToPoint::check() {
    if (destination_) {
        destination_->check(seed_of(peer()));
    }
}

/** Far enough apart for the slots of a window. */
uint64_t PointToPoint::seed_of(int sender) const {
    return (contents_ * static_cast<uint64_t>(ranks_.count()) + static_cast<uint64_t>(sender))
           << 16;
}

std::vector<Message> PointToPoint::messages_in(
    const std::unique_ptr<MessageBuffers> &buffers) const {
    std::vector<Message> all;
    for (unsigned i = 0; buffers && i < messages(); ++i) {
        all.push_back({buffers->address(i), size_});
    }
    return all;
}

}  // namespace gpushm::perf
