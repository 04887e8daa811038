// SPDX-License-Identifier: BSD-3-Clause
// A port: one mailbox of this process, and its links to the ports of other processes.
#pragma once

#include "core/base/poll_interval.hpp"
#include "core/copy/copy_engine.hpp"
#include "core/memory/allocation_table.hpp"
#include "core/memory/registration_table.hpp"
#include "core/shm/descriptor_channel.hpp"
#include "core/shm/mailbox_layout.hpp"
#include "core/shm/mailbox_receiver.hpp"
#include "core/standby/standby_registry.hpp"
#include "core/transport/link.hpp"
#include "core/transport/port_thread.hpp"

#include <unistd.h>

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace gpushm {

struct PortConfig {
    size_t ring_bytes;               // of a staging ring, at most
    size_t gpu_chunk_bytes;          // of a transfer that a GPU reads or writes
    size_t host_chunk_bytes;         // of one that both CPUs copy; fits their cache
    uint32_t cell_count;             // of the mailbox, a power of two
    bool peer_mapping = true;        // whether peers' GPU memory is mapped, and ours by peers
    bool cma = true;                 // whether the kernel may copy between the processes
    size_t ring_limit = 256u << 20;  // of all rings of a port together
};

/** What a port tells its user; called from progress(). */
struct PortCallbacks {
    void *argument;
    /** `am_id` < kActiveMessageIds; `data` is valid during the call. What of it is copied to a GPU
     * is not written before: it may have been read already (StandbyJob::next). */
    void (*active_message)(void *argument, uint8_t am_id, void *data, size_t length);
    void (*link_failed)(void *argument, Link &link);
};

/** One thread at a time. */
class Port final : private RegistrationUser {
public:
    /** Null, logged, when there is no memory or no descriptor. */
    static std::unique_ptr<Port> create(const PortConfig &config, const PortCallbacks &callbacks);
    /** In a forked child it ends the child's copy only: the segments are its parent's (Segment),
     * and so are the copies that are under way. */
    ~Port();
    /** Whether this is a forked child's copy. */
    bool is_inherited() const { return getpid() != created_by_; }

    MailboxAddress address() const { return mailbox_.address(); }
    const PortConfig &config() const { return config_; }
    CopyEngine &engine() { return engine_; }

    /** The link to a peer, made at the first call. It belongs to the port and lives at least as
     * long as it has users (Link::add_user) and the peer lives. Null, with the reason in `*why`,
     * when the peer cannot be reached. */
    Link *link(const MailboxAddress &peer, const char **why);

    /** The next progress() gives back what belongs to peers that are gone. */
    void look_for_finished_links() { links_may_be_finished_ = true; }

    /** Receives and advances; the number of things that happened. Not from within a callback. */
    unsigned progress() {
        enter();
        ++progress_number_;
        if (!something_to_do()) {
            keep_house_in_time();
            standby_kernels_.tend(StandbyKernel::Moment::idle);
            return 0;
        }
        return advance();
    }

    /** A descriptor that is readable when arm() has returned true and a message came. */
    int event_fd() const { return mailbox_.event_fd(); }
    /** False when progress() has something to do, now or soon. */
    bool arm();

    /** Messages with tickets below it may be in the mailbox or on their way there. */
    uint64_t reserved_tickets() const { return mailbox_.reserved_tickets(); }
    /** Whether every message with a ticket below `ticket` was received. */
    bool has_received(uint64_t ticket) const { return mailbox_.head() >= ticket; }

    /** Nothing is under way on any link. */
    bool idle() const { return active_.empty(); }

    /** A thread uses the port, or one of its links, now. */
    void enter() { thread_.enter(); }

    /** A link has work; it is progressed until it has none. */
    void activate(Link &link);

    /** How large the next staging ring may be: a quarter of what is left of the limit, so that many
     * peers get smaller ones; 0 when that is too little for one. */
    size_t next_ring_bytes() const;
    /** A ring of that size was made, or, if it is negative, is gone. */
    void count_ring(ptrdiff_t bytes) { ring_bytes_in_use_ += static_cast<size_t>(bytes); }

    /** A mapping was given up: to close it takes the driver 0.2 ms, least now that the peer, too,
     * frees memory. */
    void keep_house_soon() { house_is_due_ = true; }

    /** Of the calls of progress() so far. */
    uint64_t progress_number() const { return progress_number_; }

    /** Peers will send much in slots. */
    void expect_slots() {
        if (!expects_slots_) {
            expects_slots_ = true;
            mailbox_.populate();
        }
    }

    /** A SharedTransfer that is in nobody's use; none when all are. */
    SharedUse take_shared_transfer();
    /** Whether many are left: for uses that can do without. */
    bool has_many_shared_transfers() const { return __builtin_popcountll(~shared_in_use_) > 8; }
    /** Link::end_own_pushes() of all links. */
    void end_own_pushes();
    void release_shared_transfer(uint32_t index) { shared_in_use_ &= ~(uint64_t{1} << index); }
    SharedTransfer &shared_transfer(uint32_t index) const {
        return mailbox_.shared_transfer(index);
    }

    /** Makes what receive_descriptor() needs; false when that fails. */
    bool open_descriptor_receiver() { return descriptors_.open(address().cookie); }
    /** The descriptor that a peer has sent to this port with `tag`. */
    UniqueFd receive_descriptor(const DescriptorTag &tag) { return descriptors_.receive(tag); }

private:
    Port(const PortConfig &config, const PortCallbacks &callbacks, MailboxReceiver mailbox);
    /** Short: what a process that waits polls is what a message finds it in the midst of. */
    bool something_to_do() const {
        return !mailbox_.empty() || !engine_.idle() || !active_.empty() || links_may_be_finished_ ||
               allocations_.generation() != freed_seen_;
    }
    bool is_written(uint64_t registration) override;
    void end_copies(uint64_t registration) override;
    void stop_waiting(uint64_t registration) override;
    std::optional<MailboxReceiver::Writer> find_writer(uint64_t registration);
    unsigned advance();
    void keep_house_in_time() {
        if (since_housekeeping_.over() || (house_is_due_ && active_.empty())) {
            house_is_due_ = false;
            housekeeping();
        }
    }
    inline unsigned receive_messages();
    bool receive_message();
    void dispatch(const ReceivedCell &message);
    inline void expect_answer(uint16_t sender);
    inline void deliver(uint8_t am_id, void *data, size_t length);
    inline void deliver_slot(const ReceivedCell &message);
    static void report_impossible_id(uint8_t am_id);
    void dispatch_to_link(const ReceivedCell &message);
    void hand_to(Link &link, const ReceivedCell &message);
    static void report_wrong_length(const Link &link);
    void receive_close(uint16_t sender);
    void forget_sender(uint16_t sender);
    Link *find_link(const MailboxAddress &peer) const;
    inline Link *known_link(uint16_t sender);
    Link *sender_link(uint16_t sender);
    unsigned progress_links();
    void report_failure(Link &link);
    void forget_finished_links();
    void housekeeping();
    void check_exports();
    void map_early();

    const pid_t created_by_ = getpid();
    PortThread thread_;
    std::map<uint16_t, uint64_t>
        given_up_writes_;  // senders, and the registration that each did not end to write
    PortConfig config_;
    PortCallbacks callbacks_;
    MailboxReceiver mailbox_;
    CopyEngine engine_;
    DescriptorReceiver descriptors_;
    size_t ring_bytes_in_use_ = 0;
    bool expects_slots_ = false;
    uint64_t progress_number_ = 1;
    uint64_t shared_in_use_ = 0;  // a bit for each SharedTransfer
    uint32_t last_shared_id_ = 0;
    static_assert(kSharedTransfers == 64, "a bit for each");
    std::vector<std::unique_ptr<Link>> links_;
    size_t links_to_look_at_ = 16;  // with as many, peers may be gone of which nobody has told
    bool links_may_be_finished_ = false;
    std::array<Link *, kMaxSenders> link_of_sender_ = {};
    std::bitset<kMaxSenders>
        strangers_;  // senders to whom there was no link when it was looked for
    std::bitset<kMaxSenders> unanswered_;  // senders that could not be answered; it was logged
    std::vector<Link *> active_;
    PollInterval since_housekeeping_{3'000'000};  // it makes system calls
    const AllocationTable &allocations_ = AllocationTable::instance();
    StandbyKernels &standby_kernels_ = StandbyKernels::instance();
    uint64_t freed_seen_ = 0;  // its generation()
    bool house_is_due_ = false;
};

}  // namespace gpushm
