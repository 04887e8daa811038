// SPDX-License-Identifier: BSD-3-Clause
// Data of messages and transfers that the parts of a connection share.
#pragma once

#include "core/base/status.hpp"
#include "core/copy/row_views.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/memory/memory_info.hpp"
#include "core/memory/memory_query.hpp"
#include "core/shm/offered_message.hpp"

#include <cstddef>
#include <cstdint>

namespace gpushm {

/** Called once when an operation ends: ok, gpu_error, invalid, peer_failed or canceled. */
struct Completion {
    void (*function)(void *argument, Status status) = nullptr;  // null: nobody wants to know
    void *argument = nullptr;

    void call(Status status) const {
        if (function != nullptr) {
            function(argument, status);
        }
    }
};

/** Pieces of a message. */
constexpr size_t kMaxPieces = 16;

/** A piece of a message, in any kind of memory. */
struct Piece {
    const void *address;
    size_t length;  // bytes
};

/** Memory of the peer that a transfer reads or writes. */
struct RemoteMemory {
    uint64_t address;
    uint64_t registration;  // RegistrationTable id in the peer
    BufferKey buffer = {};  // the allocation that holds it; the default: not known
    /** What MessageSender::plan_speculative_copy() of the peer returned; 0: none. */
    uint64_t speculative_copy = 0;
    /** The strided rows that the peer's RowViews has behind the block; `buffer` then holds the
     * rows. Length 0: the memory is where `address` says. */
    StridedRows rows = {};
    /** Permits the receiver to copy the rows, or says where else the message is. None: it may copy
     * whatever there is. */
    OfferUse offer = {};
    /** The program gave the key to its peers, which put and get as they like. Otherwise the memory
     * is that of one message. */
    bool of_program = false;
};

/** Local memory of a transfer. */
struct LocalMemory {
    const void *address;
    MemoryInfo info;
    bool on_gpu;      // gpu_copies()
    uint64_t extent;  // bytes from the first to the last, gaps between rows included
};

/** Local memory that is sent in chunks: a put of this process, or the reply to a peer's get. */
struct ChunkedTransfer {
    uint64_t id;  // of the operation, in the process that started it
    bool is_reply;
    const void *owner;  // null for a reply
    const unsigned char *source;
    MemoryInfo source_info;
    bool by_gpu;      // gpu_copies() said of all of it when the transfer began
    uint64_t total;   // bytes
    uint64_t issued;  // bytes from the start whose copies have begun: the ahead pointer
    RemoteMemory remote;
    uint64_t registration = 0;  // reply: RegistrationTable id of the source
    bool source_gone = false;   // reply: the registration has ended

    LocalMemory local() const { return {source, source_info, by_gpu, total}; }
};

}  // namespace gpushm
