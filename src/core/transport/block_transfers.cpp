// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/block_transfers.hpp"

#include "core/memory/memory_query.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gpushm {
namespace {

// doc/decisions/block-messages.md
constexpr size_t kLongestBlock = 1024;  // bytes
constexpr size_t kManyOperations = 4;   // fewer are quicker each by itself

/** Whether one more block fits into the slot. */
bool has_room(size_t blocks, size_t bytes, size_t length) {
    return blocks < kMaxBlocks && (blocks + 1) * sizeof(Block) + bytes + length <= kSlotBytes;
}

}  // namespace

bool BlockTransfers::takes(const void *local, size_t length, const RemoteMemory &remote) const {
    const bool are_many = open_ || are_under_way() || operations_.size() >= kManyOperations;
    return are_many && length <= kLongestBlock && remote.of_program &&
           remote.address <= UINT64_MAX - length &&  // else the peer takes the message for broken
           !remote.buffer.cpu_copies() && remote.rows.length == 0 &&
           !query_memory(local).needs_gpu();
}

WrittenRanges &BlockTransfers::sent(CellKind kind) const {
    return kind == CellKind::put_blocks ? operations_.put_blocks() : operations_.get_blocks();
}

bool BlockTransfers::overlap(CellKind kind, uint64_t address, uint64_t length) const {
    const bool overlaps_open =
        open_ && open_->kind == kind && address < open_->end && open_->begin < address + length;
    return overlaps_open || sent(kind).overlaps(address, length);
}

// The peer serves messages of blocks in their order. So one waits for no other, and only for
// transfers that take another path.

Status BlockTransfers::put(const void *local, size_t length, const RemoteMemory &remote,
                           const void *owner, const Completion &completion) {
    if (operations_.read().overlaps(remote.address, length) ||
        operations_.written().overlaps(remote.address, length)) {
        return Status::no_resource;
    }
    const Status status = open_for(CellKind::put_blocks, length, remote, owner);
    if (status == Status::in_progress) {
        add({completion, nullptr, length}, remote);
        const auto *const data = static_cast<const unsigned char *>(local);
        open_->data.insert(open_->data.end(), data, data + length);
    }
    return status;
}

Status BlockTransfers::get(void *local, size_t length, const RemoteMemory &remote,
                           const void *owner, const Completion &completion) {
    if (operations_.written().overlaps(remote.address, length)) {
        return Status::no_resource;
    }
    const Status status = open_for(CellKind::get_blocks, length, remote, owner);
    if (status == Status::in_progress) {
        add({completion, static_cast<unsigned char *>(local), length}, remote);
    }
    return status;
}

/** Whether a block belongs into `open_`. Not if that was cancelled meanwhile. */
bool BlockTransfers::fits_open(CellKind kind, size_t length, const RemoteMemory &remote,
                               const void *owner) {
    if (!open_ || open_->kind != kind || open_->message.registration != remote.registration ||
        !has_room(open_->blocks.size(), open_->bytes, length)) {
        return false;
    }
    const Operation &operation = operations_.at(open_->message.transfer_id);
    return operation.owner == owner && operation.joined.size() == open_->blocks.size();
}

/** in_progress: `open_` has room for a block, and add() allocates nothing. */
Status BlockTransfers::open_for(CellKind kind, size_t length, const RemoteMemory &remote,
                                const void *owner) {
    if (fits_open(kind, length, remote, owner)) {
        return Status::in_progress;
    }
    if (open_) {
        publish();
    }
    const bool too_many =
        kind == CellKind::get_blocks && operations_.get_blocks().held() >= kMaxBlockRequests;
    if (too_many || !channel_.control.empty()) {
        return Status::no_resource;
    }
    Open open = {kind, {0, remote.registration, 0}, UINT64_MAX, 0, {}, {}, 0};
    Operation operation = {owner, Completion()};
    operation.parts = 1;  // the peer cannot end what it does not know
    operation.joined.reserve(kMaxBlocks);
    open.blocks.reserve(kMaxBlocks);
    open.data.reserve(kind == CellKind::put_blocks ? kSlotBytes : 0);
    open.message.transfer_id = operations_.start(std::move(operation));
    open_ = std::move(open);
    return Status::in_progress;
}

void BlockTransfers::add(const JoinedTransfer &transfer, const RemoteMemory &remote) {
    operations_.at(open_->message.transfer_id).joined.push_back(transfer);
    open_->blocks.push_back({remote.address, transfer.length});
    open_->bytes += transfer.length;
    open_->begin = std::min(open_->begin, remote.address);
    open_->end = std::max(open_->end, remote.address + transfer.length);
}

unsigned BlockTransfers::progress() {
    const bool sends =
        open_ && (!are_under_way() || operations_.is_awaited(open_->message.transfer_id));
    if (sends) {
        publish();
    }
    return sends ? 1 : 0;
}

void BlockTransfers::publish() {
    const Open &open = *open_;
    BlockMessage message = open.message;
    message.count = open.blocks.size();
    const size_t table_bytes = open.blocks.size() * sizeof(Block);
    std::vector<unsigned char> slot(table_bytes + open.data.size());
    memcpy(slot.data(), open.blocks.data(), table_bytes);
    std::copy(open.data.begin(), open.data.end(),
              slot.begin() + static_cast<ptrdiff_t>(table_bytes));
    Operation &operation = operations_.at(message.transfer_id);
    operation.held = sent(open.kind).hold(open.begin, open.end - open.begin);
    operation.parts = 0;
    operation.awaits_blocks = open.kind == CellKind::get_blocks;
    channel_.send(open.kind, message, std::move(slot));
    open_.reset();  // last, so that nothing is lost if memory is short
}

void BlockTransfers::receive_data(const BlockData &answer, const unsigned char *slot,
                                  size_t slot_length) {
    Operation *const operation = operations_.find(answer.transfer_id);
    if (operation == nullptr) {
        return;
    }
    size_t bytes = 0;
    for (const JoinedTransfer &get : operation->joined) {
        bytes += get.length;
    }
    const bool is_cancelled = operation->joined.empty();
    if (!std::exchange(operation->awaits_blocks, false) ||
        (!is_cancelled && bytes != slot_length)) {
        channel_.give_up_broken_transfer();
        return;
    }
    for (const JoinedTransfer &get : operation->joined) {
        memcpy(get.local, slot, get.length);
        slot += get.length;
    }
    operations_.end(answer.transfer_id, Status::ok);
}

}  // namespace gpushm
