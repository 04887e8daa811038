// SPDX-License-Identifier: BSD-3-Clause
// What the parts of a connection share: the peer, the way to it, and whether both still live.
#pragma once

#include "core/base/immovable.hpp"
#include "core/base/process.hpp"
#include "core/shm/mailbox_layout.hpp"
#include "core/shm/mailbox_sender.hpp"
#include "core/transport/control_queue.hpp"
#include "core/transport/port_services.hpp"
#include "core/transport/protocol.hpp"
#include "core/transport/transfer_types.hpp"

#include <optional>
#include <utility>
#include <vector>

namespace gpushm {

/** One thread at a time. */
class PeerChannel : Immovable {
public:
    PeerChannel(PortServices &services, Connection &connection, const MailboxAddress &address,
                MailboxSender sender)
        : port(services),
          peer(address),
          mailbox(std::move(sender)),
          control(mailbox),
          connection_(connection),
          watch_(ProcessWatch(address.pid)) {}

    /** Asks the operating system; a few hundred nanoseconds. */
    bool peer_alive() const { return watch_ && watch_->alive(); }
    /** Whether the peer's port is closed, by its own word. */
    bool peer_closed() const { return mailbox.closed(); }
    /** Whether the peer's port is closed or its process is dead. */
    bool peer_ended() const { return peer_closed() || !peer_alive(); }
    /** peer_ended(), or the peer's last message was received. */
    bool peer_gone() const { return closed || peer_ended(); }
    /** From now on peer_alive() is false. */
    void stop_watching() { watch_.reset(); }
    bool is_watching() const { return watch_.has_value(); }

    /** The connection has work. */
    void activate() { port.activate(connection_); }

    /** Sends a control message, now or in a later progress(). None after a failure. `slot`: of a
     * kind that carries_slot(). */
    template <typename Payload>
    void send(CellKind kind, const Payload &payload, std::vector<unsigned char> &&slot = {}) {
        static_assert(sizeof(payload) <= Cell::kInlineBytes, "a control message fits a cell");
        if (failed) {
            return;
        }
        control.send(kind, &payload, sizeof(payload), std::move(slot));
        if (!control.empty()) {
            activate();
        }
    }

    /** Whether the registration lives in the peer. If not, the memory may be something else by now.
     * Data that this process read there does not count; the peer copies it. */
    bool is_current(const RemoteMemory &remote) const {
        return mailbox.registrations()->contains(remote.registration);
    }

    /** Logs that the peer broke a transfer, and fails the connection. */
    void give_up_broken_transfer();
    /** The peer is dead or broken: everything ends with peer_failed. The parts of the connection
     * are empty on return. */
    void fail();

    PortServices &port;
    const MailboxAddress peer;
    MailboxSender mailbox;
    ControlQueue control;
    bool failed = false;
    bool closed = false;         // the peer's port is gone; what waits for the peer fails
    bool maps_gpu_ring = false;  // the peer's, here: PeerGpuRing::check() is due before messages

private:
    Connection &connection_;
    std::optional<ProcessWatch> watch_;
};

/** Whether the source of a reply is not registered any more. The peer may have given up what it
 * asked for, and the memory may be freed. Always false for a put. */
bool source_is_gone(ChunkedTransfer &transfer, const PeerChannel &channel);

}  // namespace gpushm
