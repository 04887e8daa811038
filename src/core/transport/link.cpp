// SPDX-License-Identifier: BSD-3-Clause
// The life of a link: connect, operations and their ends, flush, failure.
#include "core/transport/link.hpp"

#include "core/base/log.hpp"
#include "core/transport/port.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace gpushm {

std::unique_ptr<Link> Link::connect(Port &port, const MailboxAddress &peer, const char **why) {
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
    return std::unique_ptr<Link>(new Link(port, peer, std::move(*mailbox)));
}

Link::Link(Port &port, const MailboxAddress &peer, MailboxSender mailbox)
    : port_(port),
      peer_(peer),
      watch_(ProcessWatch(peer.pid)),
      mailbox_(std::move(mailbox)),
      writer_(mailbox_.direct_writes(), &mailbox_.registrations()) {}

Link::~Link() {
    if (port_.is_inherited()) {
        writer_.forget();
        return;
    }
    wait_for_copies(nullptr);
    drop_pushes();
    close_all_uses();
    await_closed_uses();
    forget_mappings();
    drop_ring();
}

void Link::remove_user() {
    if (--users_ == 0) {
        port_.look_for_finished_links();
    }
}

bool Link::finished() const {
    return !busy() && (failed_ || peer_gone());
}

void Link::release_memory() {
    if (peer_ended()) {  // no less: what is discarded is lost to him
        mailbox_.discard();
    }
    rx_ring_.reset();
    forget_spans();  // head starts that nobody asked for
    drop_ring();
    watch_.reset();
}

// ---------------------------------------------------------------- operations

uint64_t Link::start_operation(const void *owner, const Completion &completion) {
    host_rounds_.forget();
    return start_operation_of_round(owner, completion);
}

/** What host_rounds_ measures, if it does, may go on. */
uint64_t Link::start_operation_of_round(const void *owner, const Completion &completion) {
    Operation &operation = operations_[next_id_];
    operation.owner = owner;
    operation.completion = completion;
    port_.activate(*this);
    return next_id_++;
}

/** Nobody is told of its end. What the peer still sends for it is dropped, as after cancel(). */
void Link::take_back(uint64_t id) {
    const auto read =
        std::find_if(shared_reads_.begin(), shared_reads_.end(),
                     [id](const SharedRead &candidate) { return candidate.id == id; });
    if (read != shared_reads_.end()) {
        close_use(read->shared, read->pieces);
        shared_reads_.erase(read);
    }
    const auto found = operations_.find(id);
    if (found != operations_.end()) {
        close_use(found->second.shared, 1);
        operations_.erase(found);
    }
    await_closed_uses();
}

/** Something begins or ends that reads or writes the memory of an operation, if that has not been
 * cancelled. */
void Link::count_part(uint64_t id, int change) {
    const auto found = operations_.find(id);
    if (found != operations_.end()) {
        found->second.parts += static_cast<unsigned>(change);
    }
}

void Link::end_operation(uint64_t id, Status status) {
    const auto found = operations_.find(id);
    if (found == operations_.end()) {
        return;
    }
    // UCP acknowledges the transfer, and the application often sends the next message. 8 bytes
    // between two H100 take 5.2 us instead of 5.4, 8 KiB 5.6 instead of 6.1.
    mailbox_.expect_two_messages();
    // The completion may start other operations.
    const Completion completion = found->second.completion;
    revoke(found->second.shared, 1);
    operations_.erase(found);
    if (status == Status::ok) {
        host_rounds_.note_end(operations_.empty());
    } else {
        host_rounds_.forget();
    }
    if (completion.function != nullptr) {
        completion.function(completion.argument, status);
    }
    complete_flushes(Status::ok);
}

Status Link::flush(const void *owner, const Completion &completion) {
    if (failed_) {
        return Status::peer_failed;
    }
    if (operations_.empty() && ended_gets_.empty()) {
        return Status::ok;
    }
    flushes_.push_back({next_id_ - 1, owner, completion});
    return Status::in_progress;
}

void Link::complete_flushes(Status status) {
    while (!flushes_.empty() && ended_gets_.empty() &&
           (operations_.empty() || operations_.begin()->first > flushes_.front().last_id)) {
        const Completion completion = flushes_.front().completion;
        flushes_.pop_front();
        if (completion.function != nullptr) {
            completion.function(completion.argument, status);
        }
    }
}

Status Link::end_get_soon(const void *owner, const Completion &completion) {
    ended_gets_.push_back({owner, completion});
    port_.activate(*this);
    return Status::in_progress;
}

/** Those that have ended so far: a completion may start another get. */
unsigned Link::complete_ended_gets() {
    unsigned count = 0;
    for (size_t left = ended_gets_.size(); left != 0 && !ended_gets_.empty(); --left) {
        const Completion completion = ended_gets_.front().completion;
        ended_gets_.pop_front();
        if (completion.function != nullptr) {
            completion.function(completion.argument, Status::ok);
        }
        ++count;
    }
    return count;
}

bool Link::can_send() const {
    return check_sendable() == Status::ok && control_.empty() && mailbox_.has_room();
}

// ---------------------------------------------------------------- progress

bool Link::busy() const {
    if (failed_) {
        return !failure_taken_;
    }
    return check_requested_ || last_words_ || !operations_.empty() || !ended_gets_.empty() ||
           !flushes_.empty() || spans_under_way() || !streams_.empty() ||
           !incoming_copies_.empty() || !direct_copies_.empty() || !shared_reads_.empty() ||
           !help_.empty() || !control_.empty() || !map_requests_.empty() || !handles_.empty();
}

unsigned Link::progress() {
    if (failed_) {
        return 0;
    }
    unsigned count = complete_ended_gets();
    complete_flushes(Status::ok);
    count += flush_control();
    // A free or full chunk is served before completions are polled (Ji et al., IPDPSW 2012).
    count += issue_chunks();
    count += publish_spans();
    count += finish_incoming_copies();
    count += finish_direct_copies();
    count += progress_shared_reads();
    count += progress_help();
    count += answer_map_requests();
    count += open_handles();
    if (count == 0) {
        check_peer();
    }
    return count;
}

void Link::check_peer() {
    if (failed_) {
        return;
    }
    if (tx_ring_ && tx_ring_->broken()) {
        GPUSHM_LOG(error,
                   "process %d wrote invalid data into the staging ring: the connection is closed; "
                   "look for memory corruption in the job's processes",
                   peer_.pid);
        fail();
        return;
    }
    if (!last_words_ && (since_check_.over() || check_requested_)) {
        check_requested_ = false;
        if (peer_gone()) {
            last_words_ = port_.reserved_tickets();
            port_.activate(*this);
        } else if (mailbox_.is_given_up()) {
            GPUSHM_LOG(error, "process %d has closed the connection after an error: see its log",
                       peer_.pid);
            fail();
        } else if (!mailbox_.makes_sense()) {
            GPUSHM_LOG(error,
                       "the mailbox of process %d has invalid data: the connection is closed; look "
                       "for memory corruption in the job's processes",
                       peer_.pid);
            fail();
        }
    }
    if (last_words_ && port_.has_received(*last_words_)) {
        GPUSHM_LOG(debug, "process %d is gone", peer_.pid);
        fail();
    }
}

void Link::check_peer_soon() {
    check_requested_ = true;
    port_.activate(*this);
}

// ---------------------------------------------------------------- the end

/** Waits for the GPU copies from and to an owner's memory; for all with null. */
void Link::wait_for_copies(const void *owner) {
    for (OutgoingSpan &out : outgoing_spans_) {
        if (owner == nullptr || out.owner == owner || out.head_start != 0) {
            for (CopyTicket &ticket : out.tickets) {
                out.copy_failed |= port_.engine().wait(&ticket) != Status::ok;
            }
            out.tickets.clear();
        }
    }
    for (IncomingCopy &copy : incoming_copies_) {
        const auto operation = operations_.find(copy.chunk.transfer_id);
        const bool owned = copy.chunk.is_reply != 0 && operation != operations_.end() &&
                           operation->second.owner == owner;
        if ((owner == nullptr || owned) && port_.engine().wait(&copy.ticket) != Status::ok) {
            copy.chunk.failed = 1;
        }
    }
    for (DirectCopy &copy : direct_copies_) {
        if (owner == nullptr || copy.stream.owner == owner) {
            CopyTicket ticket = copy.ticket;  // how it ended is still asked for
            port_.engine().wait(&ticket);
        }
    }
}

void Link::cancel(const void *owner, std::vector<Completion> *ended) {
    port_.enter();
    const auto hand_out = [ended](const Completion &completion) {
        if (ended != nullptr && completion.function != nullptr) {
            ended->push_back(completion);
        }
    };
    const auto erase = [&](uint64_t id) {
        const auto found = operations_.find(id);
        if (found != operations_.end()) {
            hand_out(found->second.completion);
            operations_.erase(found);
        }
    };
    if (ended != nullptr) {  // here, for later nothing may fail
        ended->reserve(ended->size() + operations_.size() + ended_gets_.size() + flushes_.size());
    }
    wait_for_copies(owner);
    direct_copies_.remove_if([&](const DirectCopy &copy) {
        const bool owned = copy.stream.owner == owner && copy.purpose != DirectCopy::Purpose::push;
        if (owned) {
            erase(copy.stream.transfer_id);
        }
        return owned;
    });
    for (auto stream = streams_.begin(); stream != streams_.end();) {
        if (stream->owner == owner && !stream->is_reply) {
            erase(stream->transfer_id);
            stream = streams_.erase(stream);
        } else {
            ++stream;
        }
    }
    count_leading();
    for (const HeldTransfer &held : held_transfers_) {
        if (held.put && held.put->owner == owner) {
            erase(held.id);
        }
    }
    for (auto read = shared_reads_.begin(); read != shared_reads_.end();) {
        const auto operation = operations_.find(read->id);
        if (operation != operations_.end() && operation->second.owner == owner) {
            close_use(read->shared, read->pieces);
            read = shared_reads_.erase(read);
        } else {
            ++read;
        }
    }
    for (auto entry = operations_.begin(); entry != operations_.end();) {
        Operation &operation = entry->second;
        if (operation.owner == owner && operation.local != nullptr) {
            hand_out(operation.completion);
            close_use(operation.shared, 1);
            entry = operations_.erase(entry);  // what still arrives for it is dropped
            continue;
        }
        if (operation.owner == owner) {
            hand_out(operation.completion);
            operation.owner = nullptr;
            operation.completion = Completion();
        }
        ++entry;
    }
    const auto ended_of_owner =
        std::stable_partition(ended_gets_.begin(), ended_gets_.end(),
                              [&](const EndedGet &get) { return get.owner != owner; });
    std::for_each(ended_of_owner, ended_gets_.end(),
                  [&](const EndedGet &get) { hand_out(get.completion); });
    ended_gets_.erase(ended_of_owner, ended_gets_.end());
    const auto owned =
        std::stable_partition(flushes_.begin(), flushes_.end(),
                              [&](const PendingFlush &flush) { return flush.owner != owner; });
    for (auto flush = owned; flush != flushes_.end(); ++flush) {
        hand_out(flush->completion);
    }
    flushes_.erase(owned, flushes_.end());
    await_closed_uses();
    host_rounds_.forget();
    if (!flushes_.empty()) {
        port_.activate(*this);  // flushes of others may have nothing left to wait for
    }
}

void Link::fail() {
    if (failed_) {
        return;
    }
    failed_ = true;
    wait_for_copies(nullptr);
    forget_spans();
    streams_.clear();
    count_leading();
    incoming_copies_.clear();
    incoming_puts_.clear();
    drop_pushes();
    direct_copies_.clear();
    close_all_uses();
    await_closed_uses();
    host_rounds_.forget();
    help_.clear();
    control_.clear();
    forget_mappings();
    while (complete_ended_gets() != 0) {
    }
    // One by one: a completion may cancel others.
    while (!operations_.empty()) {
        const Completion completion = operations_.begin()->second.completion;
        operations_.erase(operations_.begin());
        if (completion.function != nullptr) {
            completion.function(completion.argument, Status::peer_failed);
        }
    }
    complete_flushes(Status::peer_failed);
    port_.activate(*this);
}

void Link::fail_for_want_of_memory() {
    GPUSHM_LOG(error,
               "memory allocation failed for messages from or to process %d: the connection is "
               "closed; raise the limits of this process (ulimit -v) or of its control group",
               peer_.pid);
    fail();
}

/** Waits for puts through a mapping; what is to be done at their end is left to
 * finish_direct_copies(). */
void Link::end_put_writes() {
    for (DirectCopy &copy : direct_copies_) {
        if (copy.write.exists()) {
            CopyTicket ticket = copy.ticket;  // how it ended is still asked for
            port_.engine().wait(&ticket);
            copy.write.end();
        }
    }
}

void Link::end_copies(uint64_t registration) {
    end_put_writes();
    for (IncomingCopy &copy : incoming_copies_) {
        if (copy.chunk.is_reply == 0 && copy.chunk.registration == registration) {
            copy.chunk.failed |= port_.engine().wait(&copy.ticket) != Status::ok ? 1u : 0u;
            copy.use.end();
        }
    }
}

/** After wait_for_copies(): nobody asks for their end any more, but a peer that lives may wait for
 * it. */
void Link::drop_pushes() {
    direct_copies_.remove_if([](const DirectCopy &copy) {
        if (copy.shared != nullptr) {
            copy.shared->finish(copy.shared_id, false);
        }
        return copy.purpose == DirectCopy::Purpose::push;
    });
}

void Link::forget_spans() {
    outgoing_spans_.clear();
    messages_in_flight_ = 0;
    waiting_ = {};
}

bool Link::take_failure() {
    const bool first = failed_ && !failure_taken_;
    failure_taken_ = failed_;
    return first;
}

void Link::send_close() {
    ReservedCell reserved;
    if (failed_) {
        return;
    }
    end_put_writes();  // the words in which the owner sees them are another's from then on
    if (mailbox_.reserve(&reserved)) {
        mailbox_.publish(reserved, CellKind::close, 0, 0);
    } else {
        mailbox_.abandon();
    }
}

void Link::receive_close() {
    wait_for_copies(nullptr);
    finish_incoming_copies();
    rx_ring_.reset();
    incoming_puts_.clear();
    control_.clear();
    exported_.clear();
    help_.clear();
    forget_mappings();  // nobody tells any more what is freed
    drop_pushes();
    // Nobody waits for replies.
    streams_.erase(std::remove_if(streams_.begin(), streams_.end(),
                                  [](const Stream &stream) { return stream.is_reply; }),
                   streams_.end());
    count_leading();
    waiting_ = {};
    outgoing_spans_.erase(
        std::remove_if(outgoing_spans_.begin(), outgoing_spans_.end(),
                       [](const OutgoingSpan &out) { return out.chunk.is_reply != 0; }),
        outgoing_spans_.end());
    closed_ = true;
    port_.look_for_finished_links();
    if (busy()) {
        port_.activate(*this);  // what waits for the peer fails
    }
}

}  // namespace gpushm
