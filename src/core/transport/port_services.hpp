// SPDX-License-Identifier: BSD-3-Clause
// What a port gives its connections.
#pragma once

#include "core/base/immovable.hpp"
#include "core/copy/copy_engine.hpp"
#include "core/shm/descriptor_channel.hpp"
#include "core/shm/mailbox_layout.hpp"
#include "core/shm/mailbox_receiver.hpp"
#include "core/shm/shared_transfer.hpp"
#include "core/transport/gpu_turn.hpp"
#include "core/transport/message_offer.hpp"
#include "core/transport/port_thread.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace gpushm {

class Connection;

struct PortConfig {
    size_t ring_bytes;               // of a staging ring, at most
    size_t gpu_chunk_bytes;          // of a transfer that a GPU reads or writes
    size_t host_chunk_bytes;         // of a transfer that both CPUs copy; fits their cache
    uint32_t cell_count;             // of the mailbox, a power of two
    bool peer_mapping = true;        // whether peers' GPU memory is mapped, and ours by peers
    bool cma = true;                 // whether process_vm_readv and process_vm_writev may be used
    size_t ring_limit = 256u << 20;  // bytes of all rings of a port together
};

/** The resources of a port that its connections use. One thread at a time. */
class PortServices : Immovable {
public:
    /** Whether this is a forked child's copy. */
    bool is_inherited() const { return getpid() != created_by_; }

    MailboxAddress address() const { return mailbox_.address(); }
    const PortConfig &config() const { return config_; }
    CopyEngine &engine() { return engine_; }

    /** A thread uses the port, or one of its connections, now. */
    void enter() {
        thread_.enter();
        gpu_turn_.enter();
    }

    GpuTurn &gpu_turn() { return gpu_turn_; }
    /** Whether no copy is under way, and at most one connection has work. */
    bool is_almost_idle() const { return engine_.idle() && active_.size() <= 1; }

    /** A connection has work; it is progressed until it has none. */
    void activate(Connection &connection);

    /** The next progress() gives back what belongs to peers that are gone. */
    void look_for_finished_connections() { connections_may_be_finished_ = true; }

    const MailboxReceiver &mailbox() const { return mailbox_; }

    /** Bytes that the next staging ring may have: a quarter of what is left of the limit, so that
     * many peers get smaller ones; 0 when that is too little for one. */
    size_t next_ring_bytes() const;
    /** A ring of that size was made, or, if it is negative, is gone. */
    void count_ring(ptrdiff_t bytes) { ring_bytes_in_use_ += static_cast<size_t>(bytes); }

    /** Housekeeping is due as soon as no connection has work: a mapping was given up, and is closed
     * then. */
    void keep_house_soon() { house_is_due_ = true; }

    /** A SharedTransfer that nobody uses; none when all are used. */
    SharedUse take_shared_transfer();
    void release_shared_transfer(uint32_t index) { shared_in_use_ &= ~(uint64_t{1} << index); }
    SharedTransfer &shared_transfer(uint32_t index) const {
        return mailbox_.shared_transfer(index);
    }

    /** For messages of this port (MessageOffer). */
    const std::shared_ptr<OfferPlaces> &offer_places() const { return offer_places_; }

    /** Tells the peers of all connections of copies into their memory that are over. A peer may
     * wait for that while this process waits. */
    virtual void end_own_pushes() = 0;

    /** What peers send to this port. */
    DescriptorReceiver &descriptors() { return descriptors_; }

protected:
    PortServices(const PortConfig &config, MailboxReceiver mailbox)
        : config_(config),
          mailbox_(std::move(mailbox)),
          offer_places_(std::make_shared<OfferPlaces>(&mailbox_.offered_message(0))) {}
    ~PortServices() { offer_places_->forget_memory(); }

    const pid_t created_by_ = getpid();
    PortThread thread_;
    PortConfig config_;
    MailboxReceiver mailbox_;
    const std::shared_ptr<OfferPlaces> offer_places_;
    CopyEngine engine_;
    DescriptorReceiver descriptors_;
    std::vector<Connection *> active_;  // connections that have work
    bool connections_may_be_finished_ = false;
    bool house_is_due_ = false;

private:
    GpuTurn gpu_turn_;
    size_t ring_bytes_in_use_ = 0;
    uint64_t shared_in_use_ = 0;  // a bit for each SharedTransfer
    uint32_t last_shared_id_ = 0;
    static_assert(kSharedTransfers == 64, "a bit for each");
};

}  // namespace gpushm
