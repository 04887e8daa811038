// SPDX-License-Identifier: BSD-3-Clause
// Transfers by a single copy between memory of this process and memory of the peer that is mapped
// here (IpcMappingCache). transfer_path.hpp says who copies what.
#pragma once

#include "core/base/immovable.hpp"
#include "core/copy/copy_engine.hpp"
#include "core/copy/row_views.hpp"
#include "core/mapping/ipc_mapping_cache.hpp"
#include "core/pinning/host_registration_cache.hpp"
#include "core/shm/direct_writes.hpp"
#include "core/transport/operations.hpp"
#include "core/transport/peer_channel.hpp"
#include "core/transport/peer_memory.hpp"
#include "core/transport/protocol.hpp"
#include "core/transport/transfer_types.hpp"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>

namespace gpushm {

/** One copy, without the ring. */
struct DirectCopy {
    /** push: into memory of a peer that asked by get_request. */
    enum class Purpose { get, put, push };

    Purpose purpose;
    ChunkedTransfer transfer;  // get: only id, owner and total
    CopyTicket ticket = {};
    std::shared_ptr<PeerMapping> mapping = nullptr;  // null: the peer is this process
    std::shared_ptr<RowReading> reading = nullptr;   // push: if it reads rows of RowViews
    HostRegistrationCache::Hold pin = nullptr;       // null: local memory is not pageable
    const void *filled = nullptr;      // get: the RowViews destination whose rows it writes
    uint64_t arrival = 0;              // get: of FoundArrival, if it is a reduction; else 0
    SharedTransfer *shared = nullptr;  // push: the peer's permission; its one piece is claimed
    uint32_t shared_id = 0;
    DirectWriter::Hold write =
        nullptr;  // put: the peer waits for its end if it deregisters the memory
    Status status = Status::in_progress;
};

/** One thread at a time. */
class DirectTransfers : Immovable {
public:
    DirectTransfers(PeerChannel &channel, Operations &operations, PeerMemory &memory);
    ~DirectTransfers();

    /** Where the peer's memory lies in this process. */
    struct View {
        unsigned char *address = nullptr;  // null: nowhere
        std::shared_ptr<PeerMapping> mapping;
        double saved_seconds = 0;  // by the mapping
        bool is_new = true;        // the transfer was not counted before
        HostRegistrationCache::Hold pin;
        MemoryInfo gpu_side;    // memory of the GPU that copies
        bool in_reach = false;  // CopyJob::in_reach
        OtherSide other_side = OtherSide::unknown;
        bool one_gpu = false;   // both sides are memory of one GPU
        bool has_turn = false;  // CopyJob::has_turn
    };

    /** A copy that can begin. */
    struct Plan {
        DirectCopy copy;
        StridedRows destination;
        StridedRows source;
        View view;
    };

    // Empty: this process cannot copy, or is not to. `is_new`: the transfer did not wait for a
    // mapping.
    /** The copy has no id yet. */
    std::optional<Plan> plan_get(const Operation &get, bool is_new);
    std::optional<Plan> plan_put(const ChunkedTransfer &transfer, bool is_new);
    /** The answer to a get request. Not where the peer would copy itself if it could: then it asks
     * for a mapping of its own. */
    std::optional<Plan> plan_push(const ChunkedTransfer &transfer, const GetRequest &request);
    /** False when nothing was started. */
    bool start(Plan plan);

    /** Whether a put to this registration may begin now. */
    bool has_room(uint64_t registration) const { return writer_.has_room(registration); }
    /** Whether plan_push() may have a better answer to a request than a speculative copy, which was
     * made by a GPU or by the CPU. */
    bool may_replace_copy(const GetRequest &request, bool by_gpu);
    /** Whether both are memory of one GPU. */
    bool same_gpu(const BufferKey &buffer, const MemoryInfo &local_info) const;
    /** Whether this process is to copy `length` bytes of a pair that shares its GPU, in either
     * direction. Where the programs of both compute, that depends on the moment. */
    bool copies_for_both(const BufferKey &buffer, const MemoryInfo &local_info, uint64_t length);
    /** Whether host memory most likely goes to a peer's GPU by a push. */
    bool is_for_push(const MemoryInfo &info, const void *address, size_t length) const;

    /** Takes out the copies that have ended. Their operations have not. */
    std::list<DirectCopy> take_ended();
    bool busy() const { return !copies_.empty(); }

    /** Tells the peer of pushes that are over; take_ended() does the rest. */
    void end_own_pushes();
    /** Waits for puts; take_ended() does the rest. */
    void end_put_writes();
    /** Waits for copies from and to an owner's memory; for all with null. */
    void wait_for_copies(const void *owner);
    /** After wait_for_copies(). */
    void cancel(Operations::Cancellation &cancellation);
    /** After wait_for_copies(). Nobody asks for the end of pushes any more, but a peer that lives
     * may wait for it. */
    void drop_pushes();
    void clear() { copies_.clear(); }
    /** In a forked child, where the peer's words are not mapped. */
    void forget_words() { writer_.forget(); }

private:
    bool leaves_to_peer(const BufferKey &buffer, const MemoryInfo &local_info);
    GpuTurn &turn_of(const MemoryInfo &local_info);
    bool has_turn(const MemoryInfo &local_info);
    bool may_copy(const RemoteMemory &remote, const MemoryInfo &local_info, uint64_t length);
    View view_remote(const BufferKey &buffer, uint64_t address, uint64_t extent,
                     const LocalMemory &local, uint64_t length, bool is_new);
    void describe_reach(View *view, const BufferKey &buffer, const LocalMemory &local,
                        uint64_t extent, uint64_t length);

    PeerChannel &channel_;
    Operations &operations_;
    PeerMemory &memory_;
    DirectWriter writer_;  // of puts
    std::list<DirectCopy> copies_;
    bool gpu_left_to_peer_ = false;    // StandbyKernels::leave_to_peer()
    bool is_counted_ = false;          // GpuTurn::count_peer()
    bool pushes_host_memory_ = false;  // a push of long host memory could begin when asked last
};

}  // namespace gpushm
