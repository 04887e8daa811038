// SPDX-License-Identifier: BSD-3-Clause
// The life of a connection: connect, progress, cancellation, failure, close.
#include "core/transport/connection.hpp"

#include "core/base/log.hpp"

#include <unistd.h>

#include <utility>

namespace gpushm {

std::unique_ptr<Connection> Connection::connect(PortServices &port, const MailboxAddress &peer,
                                                const char **why) {
    if (peer.protocol_version != kProtocolVersion) {
        *why = "it runs another version of gpushm: install the same version for both";
        return nullptr;
    }
    std::optional<MailboxSender> mailbox = MailboxSender::attach(peer, port.address(), why);
    if (!mailbox) {
        return nullptr;
    }
    if (mailbox->slot_bytes() != kSlotBytes) {
        *why = "its mailbox has slots of another size";
        return nullptr;
    }
    return std::unique_ptr<Connection>(new Connection(port, peer, std::move(*mailbox)));
}

Connection::Connection(PortServices &port, const MailboxAddress &peer, MailboxSender mailbox)
    : channel_(port, *this, peer, std::move(mailbox)),
      permissions_(channel_),
      operations_(channel_, permissions_),
      exports_(channel_),
      memory_(channel_, operations_),
      ring_sender_(channel_, operations_, exports_),
      ring_receiver_(channel_, operations_, memory_),
      transfers_(channel_, operations_, permissions_, memory_, ring_sender_, ring_receiver_),
      messages_(channel_, operations_, ring_sender_, transfers_.direct()),
      helper_(channel_),
      peer_blocks_(channel_) {}

Connection::~Connection() {
    if (channel_.port.is_inherited()) {
        transfers_.direct().forget_words();
        return;
    }
    wait_for_copies(nullptr);
    transfers_.direct().drop_pushes();
    close_permissions();
    transfers_.forget_mappings();
    ring_sender_.drop();
}

void Connection::remove_user() {
    if (--users_ == 0) {
        channel_.port.look_for_finished_connections();
    }
}

bool Connection::finished() const {
    return !busy() && (failed() || channel_.peer_gone());
}

void Connection::release_memory() {
    if (peer_ended()) {  // not before: what is discarded is lost to the peer
        channel_.mailbox.discard();
    }
    ring_receiver_.drop_ring();
    ring_sender_.forget_spans();  // speculative copies that nobody asked for
    ring_sender_.drop();
    channel_.stop_watching();
}

// ---------------------------------------------------------------- progress

bool Connection::busy() const {
    if (failed()) {
        return !failure_taken_;
    }
    return check_requested_ || last_words_ || operations_.busy() || ring_sender_.busy() ||
           ring_receiver_.busy() || transfers_.busy() || helper_.busy() || exports_.busy() ||
           !channel_.control.empty();
}

unsigned Connection::progress() {
    if (failed()) {
        return 0;
    }
    unsigned count = operations_.complete_ended_gets();
    operations_.complete_flushes(Status::ok);
    count += transfers_.blocks().progress();
    count += channel_.control.flush();
    // A free or full chunk is served before completions are polled (Ji et al., IPDPSW 2012).
    count += ring_sender_.issue_chunks();
    count += ring_sender_.publish();
    count += ring_receiver_.finish_copies();
    count += transfers_.progress();
    count += exports_.answer_requests();
    count += transfers_.open_handles();
    ring_receiver_.gpu_ring().answer();
    if (count == 0) {
        check_peer();
    }
    return count;
}

void Connection::check_peer() {
    if (failed()) {
        return;
    }
    if (ring_sender_.is_broken()) {
        GPUSHM_LOG(error,
                   "process %d wrote invalid data into the staging ring: the connection is closed; "
                   "look for memory corruption in the job's processes",
                   peer().pid);
        fail();
        return;
    }
    if (!last_words_ && (since_check_.over() || check_requested_)) {
        check_requested_ = false;
        check_mailbox();
    }
    if (last_words_ && channel_.port.mailbox().head() >= *last_words_) {
        GPUSHM_LOG(debug, "process %d is gone", peer().pid);
        fail();
    }
}

/** Fails the connection if the peer has given it up or its mailbox is invalid. If the peer is gone,
 * notes where what it sent ends. */
void Connection::check_mailbox() {
    if (channel_.peer_gone()) {
        last_words_ = channel_.port.mailbox().reserved_tickets();
        channel_.activate();
    } else if (channel_.mailbox.is_given_up()) {
        GPUSHM_LOG(error, "process %d has closed the connection after an error: see its log",
                   peer().pid);
        fail();
    } else if (!channel_.mailbox.makes_sense()) {
        GPUSHM_LOG(error,
                   "the mailbox of process %d has invalid data: the connection is closed; look for "
                   "memory corruption in the job's processes",
                   peer().pid);
        fail();
    }
}

void Connection::check_peer_soon() {
    check_requested_ = true;
    channel_.activate();
}

void Connection::end_copies(uint64_t registration) {
    transfers_.direct().end_put_writes();
    ring_receiver_.end_copies(registration);
}

bool Connection::awaits_offer() const {
    return !failed() && !channel_.closed && !exports_.has_offered() && peer().pid != getpid();
}

void Connection::keep_access(const std::optional<BufferKey> &own) {
    const bool offers = own && awaits_offer();
    PeerMemory &memory = transfers_.memory();
    const bool wants = memory.wants_offered();
    if (failed() || !(offers || wants) || channel_.peer_gone()) {
        return;
    }
    if (offers) {
        exports_.offer(*own);
    }
    if (wants) {
        memory.map_offered();
    }
}

// ---------------------------------------------------------------- the end

/** Waits for the GPU copies from and to an owner's memory; for all with null. */
void Connection::wait_for_copies(const void *owner) {
    ring_sender_.wait_for_copies(owner);
    ring_receiver_.wait_for_copies(owner);
    transfers_.direct().wait_for_copies(owner);
}

/** On return the peer writes nothing that it was permitted to write. */
void Connection::close_permissions() {
    transfers_.host_reads().drop_if([](uint64_t) { return true; });
    operations_.close_permissions();
    permissions_.await();
}

void Connection::cancel(const void *owner, std::vector<Completion> *ended) {
    channel_.port.enter();
    Operations::Cancellation cancellation(operations_, owner, ended);
    wait_for_copies(owner);
    transfers_.cancel(cancellation);
    ring_sender_.cancel(cancellation);
    cancellation.finish();
}

/** Here, because the parts of a connection do not know the connection. */
void PeerChannel::fail() {
    connection_.fail();
}

void Connection::fail() {
    if (failed()) {
        return;
    }
    channel_.failed = true;
    wait_for_copies(nullptr);
    ring_sender_.clear();
    ring_receiver_.forget();
    ring_receiver_.gpu_ring().forget();
    transfers_.direct().drop_pushes();
    transfers_.direct().clear();
    transfers_.blocks().clear();
    transfers_.offered_reads().drop_if([](uint64_t) { return true; });
    close_permissions();
    helper_.clear();
    channel_.control.clear();
    transfers_.forget_mappings();
    exports_.forget();
    operations_.fail_all();
    channel_.activate();
}

void Connection::fail_for_want_of_memory() {
    GPUSHM_LOG(error,
               "memory allocation failed for messages from or to process %d: the connection is "
               "closed; raise the limits of this process (ulimit -v) or of its control group",
               peer().pid);
    fail();
}

bool Connection::take_failure() {
    const bool first = failed() && !failure_taken_;
    failure_taken_ = failed();
    return first;
}

void Connection::send_close() {
    if (failed()) {
        return;
    }
    // The words in which the owner sees the writes are another sender's from then on.
    transfers_.direct().end_put_writes();
    ReservedCell reserved;
    if (channel_.mailbox.reserve(&reserved, Room::cell)) {
        channel_.mailbox.publish(reserved, CellKind::close, 0, 0);
    } else {
        channel_.mailbox.abandon();
    }
}

void Connection::receive_close() {
    wait_for_copies(nullptr);
    ring_receiver_.finish_copies();
    ring_receiver_.drop_ring();
    ring_receiver_.forget();
    channel_.control.clear();
    exports_.forget();
    helper_.clear();
    transfers_.forget_mappings();
    transfers_.direct().drop_pushes();
    ring_sender_.drop_replies();
    channel_.closed = true;
    channel_.port.look_for_finished_connections();
    if (busy()) {
        channel_.activate();  // what waits for the peer fails
    }
}

}  // namespace gpushm
