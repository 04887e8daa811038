// SPDX-License-Identifier: BSD-3-Clause
// A link: everything between this process's port and one other port.
#pragma once

#include "core/base/poll_interval.hpp"
#include "core/base/process.hpp"
#include "core/base/status.hpp"
#include "core/copy/copy_engine.hpp"
#include "core/copy/row_views.hpp"
#include "core/mapping/ipc_mapping_cache.hpp"
#include "core/memory/registration_table.hpp"
#include "core/pinning/host_registration_cache.hpp"
#include "core/shm/direct_writes.hpp"
#include "core/shm/mailbox_layout.hpp"
#include "core/shm/mailbox_sender.hpp"
#include "core/shm/staging_ring.hpp"
#include "core/transport/host_transfer_rounds.hpp"
#include "core/transport/protocol.hpp"
#include "core/transport/written_ranges.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace gpushm {

class Port;

/** Called once when an operation ends: ok, gpu_error, invalid, peer_failed or canceled. */
struct Completion {
    void (*function)(void *argument, Status status) = nullptr;  // null: nobody wants to know
    void *argument = nullptr;
};

/** Pieces of a message. */
constexpr size_t kMaxPieces = 16;

/** A piece of a message, in any kind of memory. */
struct Piece {
    const void *address;
    size_t length;  // bytes
};

/** Remote memory of a transfer. */
struct RemoteMemory {
    uint64_t address;
    uint64_t registration;    // RegistrationTable id in the peer
    BufferKey buffer = {};    // in which it lies; the default: not known
    uint64_t head_start = 0;  // what Link::plan_head_start() of the peer returned
    StridedRows rows = {};    // where it is in truth if it is a source of the peer's RowViews: then
                              // `buffer` is of these; length 0: it is where it says
};

/** One thread at a time, the thread that progresses the port.
 *
 * Functions that send return no_resource when they did nothing and the caller is to try again
 * after progress; peer_failed once the link has failed. `owner` tells the operations of several
 * users of one link apart, see cancel(). Active messages of one link arrive in the order in which
 * they were sent; transfers are ordered by flush() and fence() only. */
class Link {
public:
    /** Null, with the reason in `*why`, when the peer cannot be reached. */
    static std::unique_ptr<Link> connect(Port &port, const MailboxAddress &peer, const char **why);
    ~Link();

    const MailboxAddress &peer() const { return peer_; }
    bool failed() const { return failed_; }
    /** Asks the kernel; a few hundred nanoseconds. */
    bool peer_alive() const { return watch_ && watch_->alive(); }
    /** Whether the peer's port is closed, by its own word. */
    bool peer_closed() const { return mailbox_.closed(); }
    /** Whether it is that, or its process dead. */
    bool peer_ended() const { return peer_closed() || !peer_alive(); }

    /** An active message of the peer is about to be handled (MailboxSender::expect_answer). */
    bool expect_answer() { return mailbox_.expect_answer(); }

    /** Eight bytes `header` and host memory behind them; at most Cell::kInlineBytes in all. */
    Status am_short(uint8_t am_id, uint64_t header, const void *payload, size_t length);
    /** Pieces of host memory; at most Cell::kInlineBytes in all. */
    Status am_short_pieces(uint8_t am_id, const Piece *pieces, size_t piece_count);

    /** `pack` writes the message, at most kSlotBytes, to where it is told and returns its length.
     */
    using Pack = size_t (*)(void *destination, void *argument);
    Status am_pack(uint8_t am_id, Pack pack, void *argument, size_t *packed_length);

    /** The link whose `pack` runs in this thread and that would use a head start; null: none. */
    static Link *packing();
    /** For that link only: its message tells the peer of memory that he may get, all of it, while
     * nobody writes it. If the peer is likely to ask for it through the ring, the copy into that
     * begins with the message, not with the answer (link_head_start.cpp). `by_gpu`: gpu_copies()
     * says so of it. Returns what RemoteMemory::head_start of that get has to be; 0: no head start.
     */
    uint64_t plan_head_start(const void *address, size_t length, bool by_gpu);

    /** A host header and at most kMaxPieces pieces of any kind of memory, at most kSlotBytes in
     * all. in_progress when a GPU still reads a piece: `completion` is called when the pieces may
     * be used again. */
    Status am_pieces(uint8_t am_id, const void *header, size_t header_length, const Piece *pieces,
                     size_t piece_count, const void *owner, const Completion &completion);

    /** Writes local memory of any kind to the peer's memory of any kind. in_progress; completes
     * when the data is in the peer's memory, visible to its CPU and to kernels launched afterwards.
     * Waits (no_resource) for gets of the same memory and, if it is a GPU's, for puts, as a get
     * does for puts: MPI_Accumulate with MPI_REPLACE is a put, MPI_Get_accumulate a get and a put,
     * without a fence between them (Open MPI 4.1.6, ompi/mca/osc/ucx/osc_ucx_comm.c), which UCX's
     * other transports happen to keep in order. */
    Status put(const void *local, size_t length, const RemoteMemory &remote, const void *owner,
               const Completion &completion);
    /** Reads. in_progress: the data is in local memory, visible likewise, when `completion` is
     * called, in a later progress(), also where it is there at once: programs do not expect that a
     * receive ends within the call that posts it. ok: nothing was to be read. */
    Status get(void *local, size_t length, const RemoteMemory &remote, const void *owner,
               const Completion &completion);

    /** ok when all that was started has completed, otherwise in_progress and completes then. */
    Status flush(const void *owner, const Completion &completion);
    /** What is sent later takes effect after all that was started; sends return no_resource until
     * then. */
    void fence() { fence_id_ = next_id_; }

    /** Whether an active message could be sent now. */
    bool can_send() const;

    /** Ends an owner's operations without calling their completions, which are added to `ended` for
     * the caller to do so, unless that is null. On return no GPU copy touches the owner's memory
     * any more. */
    void cancel(const void *owner, std::vector<Completion> *ended = nullptr);

    /** Advances what is under way; the number of things that happened. */
    unsigned progress();
    /** Whether progress() has anything to do. */
    bool busy() const;

    /** The peer is dead or broken: everything ends with peer_failed. */
    void fail();
    /** Memory was too short for something that the peer cannot do without: as fail(), logged. */
    void fail_for_want_of_memory();
    /** Tells the peer of copies into its memory that are over, as it may wait for that while this
     * process waits. */
    void end_own_pushes();
    /** RegistrationUser::end_copies(). */
    void end_copies(uint64_t registration);
    /** True once after the link has failed: for the port, which tells its user. */
    bool take_failure();

    /** Somebody outside of the core holds the link, until remove_user(). */
    void add_user() { ++users_; }
    void remove_user();
    bool has_user() const { return users_ != 0; }
    /** Whether nothing will happen any more: nothing is under way, and the peer is gone. */
    bool finished() const;
    /** Gives back what a finished link needs no more. Until it is called, messages that the peer
     * has left in the mailbox may be received. */
    void release_memory();
    bool has_memory() const { return watch_.has_value(); }

    /** Tells the peer that nothing follows: at once, or, where its mailbox has no room, when it has
     * received everything and keeps house. */
    void send_close();

    /** Tells the peer, once, of memory of this process that it may map, if there is some, and asks
     * for what the peer told of, unless this process has mapped any before. The caller has a
     * ContextLifetimeLock. */
    bool awaits_offer() const;
    void map_early(const std::optional<BufferKey> &own);

    /** Looks whether buffers that the peer may have mapped were freed: then the peer is told. A
     * look-up for each. */
    void check_exports();

    /** Fails the link if the peer is gone and all that it sent was received; for callers that wait
     * for room. One in many calls asks the kernel. */
    void check_peer();
    /** The next progress() asks the kernel. */
    void check_peer_soon();

    // ---- what the peer sent, from Port
    void receive_ring_offer(const RingOffer &offer);
    void receive_ring_answer(const RingAnswer &answer);
    void receive_chunk(const TransferChunk &chunk, const unsigned char *slot, size_t slot_length);
    void receive_get_request(const GetRequest &request);
    void receive_transfer_done(const TransferDone &done);
    void receive_map_offer(const MapOffer &offer);
    void receive_map_request(const MapRequest &request);
    void receive_map_answer(const MapAnswer &answer);
    void receive_unmap_notice(const UnmapNotice &notice);
    void receive_help_request(const HelpRequest &request);
    void receive_help_piece(const HelpPiece &piece, const unsigned char *data, size_t length);
    void receive_close();
    /** Where an am_ring message lies; null, logged, when the span is impossible. */
    unsigned char *open_span(const RingSpan &span);
    void close_span(const RingSpan &span);

private:
    /** An operation that this process started and that has not ended. */
    struct Operation {
        const void *owner;
        Completion completion;
        bool failed = false;
        unsigned char *local = nullptr;  // get only, as what follows
        MemoryInfo local_info;
        bool local_on_gpu = false;  // gpu_copies()
        uint64_t length = 0;
        uint64_t arrived = 0;
        RemoteMemory remote = {};
        SharedUse shared;          // permits the peer to write `local`
        WrittenRanges::Hold held;  // in written_ or read_
        bool is_message = false;
        unsigned parts = 0;  // streams, spans and copies of it: while there are some, its memory is
                             // read or written
    };

    /** Takes an operation back whose start was given up by an exception. */
    class Start {
    public:
        Start(Link &link, uint64_t id) : link_(link), id_(id) {}
        Start(const Start &) = delete;
        Start &operator=(const Start &) = delete;
        ~Start() {
            if (!done_) {
                link_.take_back(id_);
            }
        }
        Status done() {
            done_ = true;
            return Status::in_progress;
        }

    private:
        Link &link_;
        const uint64_t id_;
        bool done_ = false;
    };

    /** Local memory that is being sent in chunks: a put of ours, or the reply to a peer's get. */
    struct Stream {
        uint64_t transfer_id;
        bool is_reply;
        const void *owner;  // null for a reply
        const unsigned char *source;
        MemoryInfo source_info;
        bool by_gpu;  // gpu_copies() said of all of it when it began
        uint64_t total;
        uint64_t issued;  // the ahead pointer: copies of all before it were started
        RemoteMemory remote;
        uint64_t registration = 0;  // reply: RegistrationTable id of the source
        bool source_gone = false;   // reply: it was taken out of the table
    };

    /** A span of our ring that is being filled; published in the order of the ring. */
    struct OutgoingSpan {
        RingSpan span;
        std::vector<CopyTicket> tickets;  // empty: filled
        bool copy_failed = false;
        const void *owner;
        CellKind kind;                          // am_ring or chunk_ring
        uint8_t am_id = 0;                      // am_ring
        uint64_t operation = 0;                 // am_ring: completes when published
        TransferChunk chunk = {};               // chunk_ring
        uint64_t head_start = 0;                // chunk_ring: the peer has not asked for it yet
        const unsigned char *source = nullptr;  // of a head start and a reply
        bool by_gpu = false;                    // of a head start
        uint64_t registration = 0;              // reply: RegistrationTable id of the source
        uint64_t removals =
            0;  // reply: RegistrationTable::removals() when the peer's request was good
    };

    /** A head start that begins when its message is published. */
    struct HeadStart {
        uint64_t number;
        const unsigned char *source;
        size_t length;
        MemoryInfo info;
        bool by_gpu;
    };

    /** The head starts among outgoing_spans_ that nobody has asked for yet. */
    struct WaitingHeadStarts {
        size_t count = 0;
        uint64_t bytes = 0;
        bool copying = false;  // some of them may still be filled
    };

    /** A chunk on its way out of the peer's ring by DMA; closed in the order of the ring. */
    struct IncomingCopy {
        CopyTicket ticket;
        TransferChunk chunk;
        RegistrationTable::Use use;  // of a put
    };

    /** One copy, without the ring, between memory of this process and memory of the peer that is
     * mapped here. If it fails the transfer takes the way through the ring. */
    struct DirectCopy {
        enum class Purpose {
            get,
            put,
            push
        };  // push: into memory of a peer that asked by get_request
        Purpose purpose;
        Stream stream;  // get: only transfer_id and owner
        CopyTicket ticket;
        std::shared_ptr<PeerMapping> mapping;  // null: the peer is this process
        HostRegistrationCache::Hold pin;       // null: local memory is not pageable
        const void *filled = nullptr;          // get: RowViews destination whose rows it writes
        SharedTransfer *shared = nullptr;  // push: the peer's permission, a piece of it is claimed
        uint32_t shared_id = 0;
        DirectWriter::Hold write =
            {};  // put: the peer waits for its end if it deregisters the memory
        Status status = Status::in_progress;
    };

    /** What find_mapping() returned last; holds nothing. */
    struct LastMapping {
        uint64_t generation = 0;  // of IpcMappingCache
        uint64_t owner = 0;
        uint64_t buffer_id = 0;
        CUcontext context = nullptr;
        std::weak_ptr<PeerMapping> mapping;
        unsigned uses = 0;
    };

    /** What the peer gave of a buffer that it was asked for; it is not opened yet. */
    struct PeerHandle {
        uint64_t buffer_id;
        bool usable;
        MappingHandle handle;
        uint64_t next_id;  // next_id_ when it came
    };

    /** A transfer that waits for the mapping of the peer's buffer. */
    struct HeldTransfer {
        uint64_t id;
        uint64_t buffer_id;
        std::optional<Stream> put;  // else a get
    };

    /** A get between hosts that this process copies, perhaps with help of the peer. */
    struct SharedRead {
        uint64_t id;
        uint64_t piece_bytes;
        uint32_t pieces;
        SharedUse shared;  // none: without help
        uint32_t next;     // without help: the piece that is read next
        bool by_slots;     // the help comes in slots
        bool waits;        // for that, without reading anything
        uint32_t arrived;  // pieces in slots
    };

    /** A use of a SharedTransfer of this process of which nothing is claimed any more. */
    struct ClosedUse {
        SharedUse use;
        uint32_t claimed;  // pieces, by the peer
    };

    /** Local memory of a transfer. */
    struct LocalSide {
        const void *address;
        MemoryInfo info;
        bool on_gpu;      // gpu_copies()
        uint64_t extent;  // bytes from the first to the last, gaps between rows included
    };

    /** Where remote memory lies in this process; null address: nowhere. */
    struct RemoteView {
        unsigned char *address = nullptr;
        std::shared_ptr<PeerMapping> mapping;
        double saved_seconds = 0;  // by the mapping
        bool is_new = true;        // of a message that was not counted before
        HostRegistrationCache::Hold pin;
        MemoryInfo gpu_side;    // which GPU copies
        bool in_reach = false;  // CopyJob::in_reach
        OtherSide other_side = OtherSide::unknown;
        bool one_gpu = false;  // both sides are memory of one
    };

    /** A put of the peer of which not all bytes have arrived. */
    struct IncomingPut {
        uint64_t arrived = 0;
        bool failed = false;
    };

    /** The arguments of am_pieces. */
    struct Message {
        uint8_t am_id;
        const void *header;
        size_t header_length;
        const Piece *pieces;
        size_t piece_count;
        size_t length;                                    // of all
        std::optional<MemoryInfo> gpu_sides[kMaxPieces];  // of pieces that a GPU copies
    };

    /** A get that has read all of its data; its user is not told yet. */
    struct EndedGet {
        const void *owner;
        Completion completion;
    };

    struct PendingFlush {
        uint64_t last_id;
        const void *owner;
        Completion completion;
    };

    struct ControlMessage {
        CellKind kind;
        unsigned char payload[Cell::kInlineBytes];
        uint32_t length;
    };

    enum class RingState { none, offered, ready, refused };

    Link(Port &port, const MailboxAddress &peer, MailboxSender mailbox);

    bool fence_pending() const {
        return !operations_.empty() && operations_.begin()->first < fence_id_;
    }
    void count_part(uint64_t id, int change);
    void take_back(uint64_t id);
    void give_up_broken_transfer();
    /** Whether anything may be started: not behind a failure, nor past a fence. */
    Status check_startable() const {
        if (failed_) {
            return Status::peer_failed;
        }
        return fence_pending() ? Status::no_resource : Status::ok;
    }
    /** Whether an active message may be sent: it must not overtake those that a GPU still writes
     * either. */
    Status check_sendable() const {
        const Status status = check_startable();
        return status == Status::ok && messages_in_flight_ != 0 ? Status::no_resource : status;
    }
    uint64_t start_operation(const void *owner, const Completion &completion);
    uint64_t start_operation_of_round(const void *owner, const Completion &completion);
    void end_operation(uint64_t id, Status status);
    void complete_flushes(Status status);
    Status end_get_soon(const void *owner, const Completion &completion);
    unsigned complete_ended_gets();

    bool peer_gone() const { return closed_ || peer_ended(); }

    void offer_ring(const MemoryInfo &source);
    void drop_ring();
    Status send_pieces_by_ring(const Message &message, const void *owner,
                               const Completion &completion);
    Status send_host_pieces(const Message &message);
    Status send_gpu_pieces_by_slot(const Message &message);
    bool fill_span(OutgoingSpan &out, const Message &message);

    template <typename Payload>
    void send_control(CellKind kind, const Payload &payload) {
        static_assert(sizeof(payload) <= Cell::kInlineBytes, "a control message fits a cell");
        queue_control(kind, &payload, sizeof(payload));
    }
    void queue_control(CellKind kind, const void *payload, size_t length);
    unsigned flush_control();

    unsigned issue_chunks();
    bool issue_ring_chunk(Stream &stream);
    bool issue_slot_chunk(Stream &stream);
    static Stream reply_stream(const GetRequest &request);
    bool source_is_gone(Stream &stream) const;
    TransferChunk describe_chunk(const Stream &stream) const;
    static bool is_of(const OutgoingSpan &span, const Stream &stream);
    static void note_source(OutgoingSpan &out, uint64_t registration);
    static bool lost_source(const OutgoingSpan &out);
    void add_stream(const Stream &stream);
    void queue_reply(const Stream &stream);
    bool is_one_chunk(const Stream &stream) const;
    void count_leading();
    OutgoingSpan &add_span(const RingSpan &span, const void *owner, CellKind kind, size_t copies);
    void drop_last_span();
    bool gpu_copies_chunk(const Stream &stream) const;
    size_t chunk_bytes(const Stream &stream, bool from_gpu) const;
    bool fill_by_gpu(OutgoingSpan &out, void *destination, const void *source, size_t length,
                     const MemoryInfo &gpu_side);
    bool is_filled(OutgoingSpan &out);
    void drop_pushes();
    void forget_spans();
    unsigned publish_spans();
    bool goes_in_cell(const OutgoingSpan &out) const;
    bool publish_span(OutgoingSpan &out);

    unsigned finish_incoming_copies();
    void store_chunk(const TransferChunk &chunk, const unsigned char *data, uint64_t length,
                     bool from_ring);
    unsigned char *chunk_destination(const TransferChunk &chunk, uint64_t length, MemoryInfo *info,
                                     bool *on_gpu, RegistrationTable::Use *use);
    void end_put_writes();
    void chunk_arrived(const TransferChunk &chunk, uint64_t length, bool stored);
    void wait_for_copies(const void *owner);

    // link_head_start.cpp
    bool head_start_is_likely() const;
    size_t pack_with_plan(Pack pack, void *destination, void *argument);
    void begin_head_start();
    bool fill_head_start(OutgoingSpan &out, const HeadStart &plan);
    bool claim_head_start(const GetRequest &request);
    void count_staged_get(bool by_gpu);
    bool hold_head_start(OutgoingSpan &front);
    void give_up_head_start(OutgoingSpan &out);
    void give_up_head_starts();
    void stop_waiting(OutgoingSpan &out);
    /** Whether anything will happen to the spans without a request of the peer. */
    bool spans_under_way() const {
        return waiting_.copying || outgoing_spans_.size() != waiting_.count;
    }

    // link_direct.cpp
    bool may_copy(const RemoteMemory &remote, const MemoryInfo &local_info, uint64_t length);
    bool start_direct_get(uint64_t id, bool is_new = true);
    bool start_direct_put(const Stream &stream, bool is_new = true);
    bool start_push(const Stream &stream, const GetRequest &request);
    // Below it the CPU has copied from or to the ring before a copy through the mapping has begun
    // (10.5 us instead of 7.1; 16 KiB to a GPU 8.2 instead of 9.9, 32 KiB 10.7 instead of 14).
    static constexpr uint64_t kSmallestHostCopy = 64u << 10;
    size_t usual_head_start(bool by_gpu) const;
    size_t longest_head_start(const MemoryInfo &source, bool by_gpu) const;
    bool is_for_push(const MemoryInfo &info, const void *address, size_t length) const;
    RemoteView view_remote(const BufferKey &buffer, uint64_t address, uint64_t extent,
                           const LocalSide &local, uint64_t length, bool is_new);
    CUcontext context_of_copy(const BufferKey &buffer, const MemoryInfo &local_info);
    static LocalSide local_side(const Stream &stream);
    static StridedRows destination_of(const Operation &operation, const StridedRows &source);
    bool start_direct(DirectCopy copy, const StridedRows &destination, const StridedRows &source,
                      const RemoteView &view);
    bool same_gpu(const BufferKey &buffer, const MemoryInfo &local_info) const;
    bool copies_for_both(const BufferKey &buffer) const;
    unsigned finish_direct_copies();
    void take_other_way(DirectCopy &copy);
    void request_data(uint64_t id, bool may_be_pushed);
    void end_direct_copy(DirectCopy &copy);

    // link_mappings.cpp
    bool is_of_peer(const BufferKey &buffer);
    std::shared_ptr<PeerMapping> find_mapping(const BufferKey &buffer, CUcontext context,
                                              double missed_seconds, bool ready, bool is_new);
    bool take_request(uint64_t owner, uint64_t buffer_id);
    bool may_open_handle() const;
    unsigned open_handles();
    bool is_to_wait(const BufferKey &buffer, uint64_t length, bool has_ring) const;
    bool hold_get(uint64_t id);
    bool hold_put(const Stream &stream);
    void release_held(uint64_t buffer_id);
    void release_held(const HeldTransfer &held);
    void forget_mappings();
    unsigned answer_map_requests();
    void answer_map_request(const MapRequest &request);
    void remember_export(const BufferKey &buffer);
    std::vector<BufferKey>::iterator take_back_export(std::vector<BufferKey>::iterator buffer);

    // link_shared.cpp
    bool is_current(const RemoteMemory &remote) const;
    bool may_read(const RemoteMemory &remote, bool local_on_gpu) const;
    std::optional<HostTransferWays::Way> choose_host_way(const RemoteMemory &remote, size_t length,
                                                         const MemoryInfo &local,
                                                         bool local_on_gpu);
    bool read_at_once(void *local, size_t length, const RemoteMemory &remote);
    void note_refused_read(const BufferKey &buffer);
    bool start_shared_read(uint64_t id, HostTransferWays::Way way);
    void ask_for_help(const SharedRead &read);
    bool waits_for_pieces() const;
    void stop_waiting_for_pieces();
    std::optional<uint32_t> next_piece(SharedRead &read);
    unsigned progress_shared_reads();
    bool finish_shared_read(size_t index);
    void give_up_shared_read(size_t index, bool refused);
    void close_all_uses();
    void forget_served_help();
    unsigned progress_help();
    /** What became of an attempt to help with one piece. */
    enum class Help { given, no_room, over };
    Help help_by_slot(const HelpRequest &request);
    Help help_by_kernel(const HelpRequest &request);
    bool has_room_for_piece() const;
    /** A request that had to wait would be of no use, and of a peer that makes no progress there
     * would be ever more. */
    bool can_ask_for_help() const { return control_.empty() && mailbox_.has_room(); }
    void close_use(const SharedUse &use, uint32_t pieces);
    bool helper_writes(const ClosedUse &closed) const;
    void await_closed_uses();
    void revoke(const SharedUse &use, uint32_t pieces);

    Port &port_;
    MailboxAddress peer_;
    std::optional<ProcessWatch> watch_;  // until release_memory()
    MailboxSender mailbox_;
    bool failed_ = false;
    bool failure_taken_ = false;
    bool closed_ = false;  // the peer's port is gone; what waits for it fails
    unsigned users_ = 0;
    PollInterval since_check_{2'000'000};  // of the peer, by a system call
    bool check_requested_ = false;
    std::optional<uint64_t> last_words_;  // the peer is gone; what it sent ends before this ticket

    std::deque<ControlMessage> control_;  // did not find room in the mailbox yet

    uint64_t next_id_ = 1;
    uint64_t fence_id_ = 0;  // operations below it must end before anything is sent
    WrittenRanges written_;  // by puts
    WrittenRanges read_;     // by gets
    std::map<uint64_t, Operation> operations_;
    std::deque<EndedGet> ended_gets_;
    std::deque<PendingFlush> flushes_;

    RingState ring_state_ = RingState::none;
    std::optional<StagingRingSender> tx_ring_;
    std::deque<OutgoingSpan> outgoing_spans_;
    unsigned messages_in_flight_ = 0;  // am_ring among outgoing_spans_
    std::deque<Stream> streams_;
    size_t leading_ = 0;  // of one chunk each, in front of all others

    std::optional<HeadStart> planned_;
    uint64_t last_head_start_ = 0;
    // Small gets in a row that went through the ring: of memory that the CPU copies, that a GPU
    // copies.
    unsigned staged_gets_[2] = {};
    unsigned unasked_ = 0;  // messages since the last request that could not have a head start
    WaitingHeadStarts waiting_;

    std::optional<StagingRingReceiver> rx_ring_;
    std::deque<IncomingCopy> incoming_copies_;
    std::map<uint64_t, IncomingPut> incoming_puts_;

    std::vector<ClosedUse> closed_uses_;  // that await_closed_uses() waits for
    bool cma_refused_ = false;            // the kernel does not copy between the two processes
    std::deque<SharedRead> shared_reads_;
    std::deque<HelpRequest> help_;
    HostTransferRounds host_rounds_;
    uint64_t piece_heard_ =
        0;  // monotonic_nanoseconds() when one came in a slot, or the first of them was asked for
    // Pieces in slots that the peer has not received: few, so that messages of others are not far
    // behind them.
    static constexpr size_t kMaxSlotPieces = 16;
    bool sends_slots_ = false;
    uint64_t slot_tickets_[kMaxSlotPieces] = {};
    size_t slot_pieces_ = 0;  // so far
    uint64_t slot_sent_ = 0;  // monotonic_nanoseconds() of the last one

    DirectWriter writer_;  // of puts
    std::list<DirectCopy> direct_copies_;
    uint64_t owner_ = 0;  // BufferKey::owner of the peer, once it is known
    LastMapping last_mapping_;
    uint64_t asked_for_ =
        0;  // the buffer whose handle the operation that is being started has asked for
    std::vector<uint64_t>
        requested_;  // buffers whose handles the peer was asked for and has not answered
    std::deque<PeerHandle> handles_;
    std::vector<HeldTransfer> held_transfers_;
    std::deque<MapRequest> map_requests_;  // of the peer
    std::optional<BufferKey> offered_;     // by the peer; nothing has come of it yet
    bool has_offered_ = false;
    bool gpu_left_to_peer_ = false;    // StandbyKernels::leave_to_peer()
    bool peer_gets_to_gpu_ = false;    // what it asked for last
    bool pushes_host_memory_ = false;  // could, of kSmallestHostCopy or more, when asked last
    std::vector<BufferKey> exported_;  // what the peer may have mapped
};

/** Here, as short messages take as long as the instructions for them. */
inline Status Link::am_short(uint8_t am_id, uint64_t header, const void *payload, size_t length) {
    const Status status = check_sendable();
    if (status != Status::ok) {
        return status;
    }
    if (length > Cell::kInlineBytes - sizeof(header)) {
        return Status::invalid;
    }
    ReservedCell reserved;
    if (!mailbox_.reserve(&reserved)) {
        return Status::no_resource;
    }
    memcpy(reserved.cell->payload, &header, sizeof(header));
    if (length != 0) {  // else it may be null
        memcpy(reserved.cell->payload + sizeof(header), payload, length);
    }
    mailbox_.publish(reserved, CellKind::am_inline, am_id,
                     static_cast<uint32_t>(sizeof(header) + length));
    return Status::ok;
}

}  // namespace gpushm
