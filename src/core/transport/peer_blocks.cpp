// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/peer_blocks.hpp"

#include "core/base/addresses.hpp"
#include "core/base/interval_map.hpp"
#include "core/base/log.hpp"
#include "core/copy/copy_pieces.hpp"
#include "core/memory/registration_table.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace gpushm {
namespace {

/** A copy of the blocks that a message names, each of them possible. */
struct BlockList {
    std::vector<Block> blocks;
    uint64_t bytes = 0;  // of all
    uint64_t begin = UINT64_MAX;
    uint64_t end = 0;          // behind the last byte
    bool is_ascending = true;  // and no block overlaps another one

    size_t table_bytes() const { return blocks.size() * sizeof(Block); }
};

/** Empty: the message makes no sense. */
std::optional<BlockList> read_blocks(const BlockMessage &message, const unsigned char *slot,
                                     size_t slot_length) {
    if (message.count == 0 || message.count > kMaxBlocks ||
        message.count * sizeof(Block) > slot_length) {
        return std::nullopt;
    }
    BlockList list;
    list.blocks.resize(message.count);
    memcpy(list.blocks.data(), slot, list.table_bytes());
    for (const Block &block : list.blocks) {
        if (block.length == 0 || block.length > kSlotBytes - list.bytes ||
            block.address > UINT64_MAX - block.length) {
            return std::nullopt;
        }
        list.bytes += block.length;
        list.is_ascending &= block.address >= list.end;
        list.begin = std::min(list.begin, block.address);
        list.end = std::max(list.end, block.address + block.length);
    }
    return list;
}

/** Data of a put for a range of memory. */
struct Written {
    const unsigned char *data;
    uintptr_t end;  // behind the last byte of the range

    uintptr_t range_end() const { return end; }
};

/** What each byte is to be after all puts, without overlaps. */
std::vector<CopyPiece> last_writes(const BlockList &list, const unsigned char *data) {
    IntervalMap<Written> writes;
    for (const Block &block : list.blocks) {
        const uintptr_t begin = block.address;
        const uintptr_t end = begin + block.length;
        for (const auto &[old_begin, old] : writes.take_overlapping(begin, end)) {
            if (old_begin < begin) {
                writes[old_begin] = {old.data, begin};
            }
            if (old.end > end) {
                writes[end] = {old.data + (end - old_begin), old.end};
            }
        }
        writes[begin] = {data, end};
        data += block.length;
    }
    std::vector<CopyPiece> pieces;
    for (const auto &[begin, written] : writes) {
        pieces.push_back({to_pointer(begin), written.data, written.end - begin});
    }
    return pieces;
}

std::vector<CopyPiece> puts_of(const BlockList &list, const unsigned char *data) {
    if (!list.is_ascending) {
        return last_writes(list, data);
    }
    std::vector<CopyPiece> pieces;
    for (const Block &block : list.blocks) {
        append_joined(&pieces, {to_pointer(block.address), data, block.length});
        data += block.length;
    }
    return pieces;
}

std::vector<CopyPiece> gets_of(const BlockList &list, unsigned char *data) {
    std::vector<CopyPiece> pieces;
    for (const Block &block : list.blocks) {
        append_joined(&pieces, {data, to_pointer(block.address), block.length});
        data += block.length;
    }
    return pieces;
}

/** The registration covers all blocks. */
RegistrationTable::Use use_of(const BlockMessage &message, const BlockList &list) {
    return RegistrationTable::instance().use(message.registration, list.begin,
                                             list.end - list.begin);
}

}  // namespace

void PeerBlocks::receive_puts(const BlockMessage &message, const unsigned char *slot,
                              size_t slot_length) {
    const std::optional<BlockList> list = read_blocks(message, slot, slot_length);
    if (!list || list->bytes != slot_length - list->table_bytes()) {
        give_up_broken_peer();
        return;
    }
    const RegistrationTable::Use use = use_of(message, *list);
    if (use && copy_pieces(puts_of(*list, slot + list->table_bytes())) == Status::ok) {
        channel_.send(CellKind::transfer_done, TransferDone{message.transfer_id, 0});
    } else {
        refuse(message);
    }
}

void PeerBlocks::receive_gets(const BlockMessage &message, const unsigned char *slot,
                              size_t slot_length) {
    const std::optional<BlockList> list = read_blocks(message, slot, slot_length);
    if (!list || list->table_bytes() != slot_length ||
        channel_.control.count(CellKind::block_data) >= kMaxBlockRequests) {
        give_up_broken_peer();
        return;
    }
    // Page-locked, for the GPU.
    const HostBlock gathered(list->bytes);
    auto *const data = static_cast<unsigned char *>(gathered.address());
    const RegistrationTable::Use use = use_of(message, *list);
    if (use && data != nullptr && copy_pieces(gets_of(*list, data)) == Status::ok) {
        channel_.send(CellKind::block_data, BlockData{message.transfer_id},
                      std::vector<unsigned char>(data, data + list->bytes));
    } else {
        refuse(message);
    }
}

/** Not an error of this process: after a forced close it is the usual end. */
void PeerBlocks::refuse(const BlockMessage &message) {
    GPUSHM_LOG(debug,
               "process %d puts or gets blocks that are not registered for it, or a GPU failed: "
               "refused",
               channel_.peer.pid);
    channel_.send(CellKind::transfer_done, TransferDone{message.transfer_id, 1});
}

void PeerBlocks::give_up_broken_peer() {
    GPUSHM_LOG(error,
               "process %d sent a message of blocks that makes no sense: the connection is closed; "
               "look for memory corruption in the job's processes",
               channel_.peer.pid);
    channel_.fail();
}

}  // namespace gpushm
