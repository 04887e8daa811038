// SPDX-License-Identifier: BSD-3-Clause
// A connection: everything between this process's port and one other port.
//
//   PeerChannel        the peer, its mailbox, control messages
//   WritePermissions   what the peer may write here
//   Operations         what this process started: order, completions, flush and fence
//   ExportedMemory     memory of this process that the peer maps
//   PeerMemory         memory of the peer that is mapped here
//   GpuRing, PeerGpuRing, SpeculativeCopies, RingSender, RingReceiver
//                      both directions of the staging ring
//   HostReads, DirectTransfers, BlockTransfers
//                      paths of puts and gets
//   Transfers          puts and gets, by the path that choose_path() names
//   MessageSender      active messages
//   HostReadHelper, PeerBlocks
//                      what this process does for transfers of the peer
//
// Each part includes only parts above it in this list.
#pragma once

#include "core/base/poll_interval.hpp"
#include "core/base/status.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/shm/mailbox_layout.hpp"
#include "core/shm/mailbox_sender.hpp"
#include "core/transport/exported_memory.hpp"
#include "core/transport/host_read_helper.hpp"
#include "core/transport/message_sender.hpp"
#include "core/transport/operations.hpp"
#include "core/transport/peer_blocks.hpp"
#include "core/transport/peer_channel.hpp"
#include "core/transport/port_services.hpp"
#include "core/transport/protocol.hpp"
#include "core/transport/ring_receiver.hpp"
#include "core/transport/ring_sender.hpp"
#include "core/transport/transfer_types.hpp"
#include "core/transport/transfers.hpp"
#include "core/transport/write_permissions.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace gpushm {

/** One thread at a time, the thread that progresses the port.
 *
 * Functions that send return no_resource when they did nothing and the caller is to try again
 * after progress; peer_failed once the connection has failed. `owner` tells the operations of
 * several users of one connection apart, see cancel(). Active messages of one connection arrive in
 * the order in which they were sent; transfers are ordered by flush() and
 * fence(), and as put() says. */
class Connection final {
public:
    /** Null, with the reason in `*why`, when the peer cannot be reached. */
    static std::unique_ptr<Connection> connect(PortServices &port, const MailboxAddress &peer,
                                               const char **why);
    ~Connection();

    const MailboxAddress &peer() const { return channel_.peer; }
    bool failed() const { return channel_.failed; }
    /** Asks the operating system; a few hundred nanoseconds. */
    bool peer_alive() const { return channel_.peer_alive(); }
    /** Whether the peer's port is closed, by its own word. */
    bool peer_closed() const { return channel_.peer_closed(); }
    /** Whether the peer's port is closed or its process is dead. */
    bool peer_ended() const { return channel_.peer_ended(); }

    // ---------------------------------------------------------------- messages

    /** An active message of the peer is about to be handled (MailboxSender::expect_answer). */
    bool expect_answer() { return channel_.mailbox.expect_answer(); }

    /** Eight bytes `header` and host memory behind them; at most Cell::kInlineBytes in all. */
    Status am_short(uint8_t am_id, uint64_t header, const void *payload, size_t length) {
        check_gpu_ring();
        return messages_.send_short(am_id, header, payload, length);
    }
    /** Pieces of host memory; at most Cell::kInlineBytes in all. */
    Status am_short_pieces(uint8_t am_id, const Piece *pieces, size_t piece_count) {
        check_gpu_ring();
        return messages_.send_short_pieces(am_id, pieces, piece_count);
    }
    /** `pack` writes the message, at most kSlotBytes, to where it is told and returns its length.
     */
    using Pack = MessageSender::Pack;
    Status am_pack(uint8_t am_id, Pack pack, void *argument, size_t *packed_length) {
        channel_.port.enter();
        check_gpu_ring();
        return messages_.send_packed(am_id, pack, argument, packed_length);
    }
    /** A host header and at most kMaxPieces pieces of any kind of memory, at most kSlotBytes in
     * all. in_progress when a GPU still reads a piece: `completion` is called when the pieces may
     * be used again. */
    Status am_pieces(uint8_t am_id, const void *header, size_t header_length, const Piece *pieces,
                     size_t piece_count, const void *owner, const Completion &completion) {
        channel_.port.enter();
        check_gpu_ring();
        return messages_.send_pieces(am_id, header, header_length, pieces, piece_count, owner,
                                     completion);
    }

    // ---------------------------------------------------------------- transfers

    /** Writes local memory of any kind to the peer's memory of any kind. in_progress; completes
     * when the data is in the peer's memory, visible to its CPU and to kernels launched afterwards.
     * Waits (no_resource) for gets of the memory that it writes. A put to GPU memory also waits for
     * puts there. A get waits for puts. The reason: MPI_Accumulate with MPI_REPLACE is a put,
     * MPI_Get_accumulate a get and a put, without a fence between them (Open MPI 4.1.6,
     * ompi/mca/osc/ucx/osc_ucx_comm.c), which UCX's other transports happen to keep in order. */
    Status put(const void *local, size_t length, const RemoteMemory &remote, const void *owner,
               const Completion &completion) {
        channel_.port.enter();
        return transfers_.put(local, length, remote, owner, completion);
    }
    /** Reads. in_progress: the data is in local memory, visible as by put(), when `completion` is
     * called, in a later progress(), even if it is there at once: programs do not expect that a
     * receive ends within the call that posts it. ok: nothing was to be read. */
    Status get(void *local, size_t length, const RemoteMemory &remote, const void *owner,
               const Completion &completion) {
        channel_.port.enter();
        return transfers_.get(local, length, remote, owner, completion);
    }
    /** ok when all that was started has completed, else in_progress and completes then. */
    Status flush(const void *owner, const Completion &completion) {
        return operations_.flush(owner, completion);
    }
    /** What is sent later takes effect after all that was started; sends return no_resource until
     * then. */
    void fence() { operations_.fence(); }
    /** Ends an owner's operations without calling their completions, which are added to `ended` for
     * the caller to do so, unless that is null. On return no GPU copy touches the owner's memory
     * any more. */
    void cancel(const void *owner, std::vector<Completion> *ended = nullptr);

    // ---------------------------------------------------------------- progress

    /** Advances what is under way; the number of things that happened. */
    unsigned progress();
    /** Whether progress() has anything to do. */
    bool busy() const;
    /** Fails the connection if the peer is gone and all that it sent was received; for callers that
     * wait for room. One in many calls asks the operating system. */
    void check_peer();
    /** The next progress() asks the operating system. */
    void check_peer_soon();

    /** PortServices::end_own_pushes(), of this connection. */
    void end_own_pushes() { transfers_.direct().end_own_pushes(); }
    /** RegistrationUser::end_copies(). */
    void end_copies(uint64_t registration);
    /** Tells the peer of buffers that it may have mapped and that were freed. A look-up for each.
     */
    void check_exports() {
        exports_.check();
        ring_receiver_.gpu_ring().check();
    }
    /** Whether the peer may be told of memory that it may map. */
    bool awaits_offer() const;
    /** Tells the peer, once, of memory of this process that it may map, if there is some, and asks
     * for what the peer told of, unless this process has mapped any before. The caller has a
     * ContextLifetimeLock. */
    void keep_access(const std::optional<BufferKey> &own);

    // ---------------------------------------------------------------- end

    /** The peer is dead or broken: everything ends with peer_failed. */
    void fail();
    /** Fails the connection, because memory is too short for what the peer needs; logged. */
    void fail_for_want_of_memory();
    /** True once after the connection has failed: for the port, which tells its user. */
    bool take_failure();

    /** Somebody outside of the core holds the connection, until remove_user(). */
    void add_user() { ++users_; }
    void remove_user();
    bool has_user() const { return users_ != 0; }
    /** Whether nothing will happen any more: nothing is under way, and the peer is gone. */
    bool finished() const;
    /** Gives back what a finished connection needs no more. Until it is called, messages that the
     * peer has left in the mailbox may be received. */
    void release_memory();
    bool has_memory() const { return channel_.is_watching(); }

    /** Tells the peer that nothing follows: at once, or, where its mailbox has no room, when it has
     * received everything, in its
     * housekeeping. */
    void send_close();
    /** The peer sends nothing more. */
    void receive_close();

    // ---------------------------------------------------------------- what the peer sent

    RingSender &ring_sender() { return ring_sender_; }
    RingReceiver &ring_receiver() { return ring_receiver_; }
    Transfers &transfers() { return transfers_; }
    ExportedMemory &exports() { return exports_; }
    void receive_notice(const UnmapNotice &notice) {
        ring_receiver_.gpu_ring().receive_notice(notice);
        memory_.receive_notice(notice);
    }
    HostReadHelper &helper() { return helper_; }
    PeerBlocks &peer_blocks() { return peer_blocks_; }

private:
    Connection(PortServices &port, const MailboxAddress &peer, MailboxSender mailbox);

    void wait_for_copies(const void *owner);
    /** Before a message, by which the peer may learn of memory of this process. */
    void check_gpu_ring() {
        if (channel_.maps_gpu_ring) {
            ring_receiver_.gpu_ring().check();
        }
    }
    void close_permissions();
    void check_mailbox();

    PeerChannel channel_;
    WritePermissions permissions_;
    Operations operations_;
    ExportedMemory exports_;
    PeerMemory memory_;
    RingSender ring_sender_;
    RingReceiver ring_receiver_;
    Transfers transfers_;
    MessageSender messages_;
    HostReadHelper helper_;
    PeerBlocks peer_blocks_;

    bool failure_taken_ = false;
    unsigned users_ = 0;
    PollInterval since_check_{2'000'000};  // of the peer, by a system call
    bool check_requested_ = false;
    /** The peer is gone; what it sent ends before this ticket. */
    std::optional<uint64_t> last_words_;
};

}  // namespace gpushm
