// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/port.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/base/spare_descriptor.hpp"
#include "core/mapping/announced_memory.hpp"
#include "core/memory/registration_table.hpp"
#include "core/reclaim/deferred_free.hpp"
#include "core/reclaim/context_lifetime.hpp"
#include "core/shm/message_in_hand.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace gpushm {
namespace {

// Enough to amortise a call, few enough that links are served between.
constexpr unsigned kMessagesPerProgress = 16;

// Where more come at once there are others behind them, most likely.
constexpr unsigned kFewMessages = 4;

template <typename Payload>
bool read_payload(const ReceivedCell &message, Payload *payload) {
    if (!carries_slot(message.kind) && message.length != sizeof(Payload)) {
        return false;
    }
    memcpy(payload, message.payload, sizeof(Payload));
    return true;
}

}  // namespace

std::unique_ptr<Port> Port::create(const PortConfig &config, const PortCallbacks &callbacks) {
    std::optional<MailboxReceiver> mailbox = MailboxReceiver::create(config.cell_count, kSlotBytes);
    if (!mailbox) {
        return nullptr;
    }
    keep_spare_descriptor();
    return std::unique_ptr<Port>(new Port(config, callbacks, std::move(*mailbox)));
}

Port::Port(const PortConfig &config, const PortCallbacks &callbacks, MailboxReceiver mailbox)
    : config_(config), callbacks_(callbacks), mailbox_(std::move(mailbox)) {
    RegistrationTable::instance().publish(mailbox_.registrations(), this);
}

Port::~Port() {
    if (is_inherited()) {
        return;
    }
    RegistrationTable::instance().cancel(mailbox_.registrations(), this);
    mailbox_.close();
    for (const std::unique_ptr<Link> &link : links_) {
        link->send_close();
    }
    while (!links_.empty()) {  // they end what peers still write by a SharedTransfer, and ask the
                               // others to do so
        const std::unique_ptr<Link> last = std::move(links_.back());
        links_.pop_back();
    }
    StandbyKernels::instance().log_use();
    mailbox_.discard();
}

Link *Port::find_link(const MailboxAddress &peer) const {
    for (const std::unique_ptr<Link> &link : links_) {
        if (link->peer().cookie == peer.cookie) {
            return link.get();
        }
    }
    return nullptr;
}

Link *Port::link(const MailboxAddress &peer, const char **why) {
    enter();
    if (Link *known = find_link(peer)) {
        return known;
    }
    std::unique_ptr<Link> link = Link::connect(*this, peer, why);
    if (!link) {
        return nullptr;
    }
    if (active_.capacity() <= links_.size()) {
        active_.reserve(2 * links_.size() + 1);  // activate() allocates nothing
    }
    links_.push_back(std::move(link));
    strangers_.reset();
    if (links_.size() >= links_to_look_at_) {
        look_for_finished_links();
    }
    return links_.back().get();
}

size_t Port::next_ring_bytes() const {
    // Four fragments of eager messages, so that they are copied side by side.
    constexpr size_t kSmallestRing = 4 * kSlotBytes;
    const size_t left = config_.ring_limit - std::min(config_.ring_limit, ring_bytes_in_use_);
    const size_t bytes = std::min(config_.ring_bytes, left / 4);
    return bytes < std::min(kSmallestRing, config_.ring_bytes) ? 0 : bytes;
}

SharedUse Port::take_shared_transfer() {
    if (~shared_in_use_ == 0) {
        return SharedUse();
    }
    const auto index = static_cast<uint32_t>(__builtin_ctzll(~shared_in_use_));
    shared_in_use_ |= uint64_t{1} << index;
    last_shared_id_ += last_shared_id_ == UINT32_MAX ? 2 : 1;  // 0 is nobody's
    return {index, last_shared_id_};
}

void Port::end_own_pushes() {
    for (const std::unique_ptr<Link> &link : links_) {
        link->end_own_pushes();
    }
}

/** A peer that writes to a registration which has ended. What it has written for too long already
 * does not count: it does nothing, most likely, or the place would be another's. */
std::optional<MailboxReceiver::Writer> Port::find_writer(uint64_t registration) {
    std::optional<MailboxReceiver::Writer> writer = mailbox_.find_writer(registration, 0);
    while (writer) {
        const auto given_up = given_up_writes_.find(writer->sender);
        if (given_up == given_up_writes_.end()) {
            break;
        }
        if (!mailbox_.writes(writer->sender, given_up->second)) {
            given_up_writes_.erase(given_up);
            break;
        }
        writer = mailbox_.find_writer(registration, writer->sender + 1u);
    }
    return writer;
}

bool Port::is_written(uint64_t registration) {
    return find_writer(registration).has_value();
}

void Port::end_copies(uint64_t registration) {
    thread_.act_if_own([&] {
        for (const std::unique_ptr<Link> &link : links_) {
            as_possible([&] { link->end_copies(registration); });
        }
    });
}

void Port::stop_waiting(uint64_t registration) {
    while (const std::optional<MailboxReceiver::Writer> writer = find_writer(registration)) {
        GPUSHM_LOG(error,
                   "process %d does not end a copy into memory that this process has deregistered: "
                   "it was stopped, "
                   "or hangs; what it has begun to write may still be written",
                   writer->pid);
        if (!as_possible([&] { given_up_writes_[writer->sender] = registration; })) {
            return;
        }
    }
}

void Port::activate(Link &link) {
    if (std::find(active_.begin(), active_.end(), &link) == active_.end()) {
        active_.push_back(&link);
    }
}

/** The link to a sender, if there is one. */
inline Link *Port::known_link(uint16_t sender) {
    Link *&link = link_of_sender_[sender];
    if (link == nullptr && !strangers_[sender]) {
        const std::optional<MailboxAddress> address = mailbox_.sender_address(sender);
        link = address ? find_link(*address) : nullptr;
        strangers_[sender] = link == nullptr;
    }
    return link;
}

inline void Port::expect_answer(uint16_t sender) {
    if (Link *link = known_link(sender)) {
        link->expect_answer();
    }
}

/** The id is an index to whoever receives the message. */
inline void Port::deliver(uint8_t am_id, void *data, size_t length) {
    if (am_id < kActiveMessageIds) {
        callbacks_.active_message(callbacks_.argument, am_id, data, length);
    } else {
        report_impossible_id(am_id);
    }
}

/** What is copied to a GPU by a standby kernel is copied with what follows in mind. */
inline void Port::deliver_slot(const ReceivedCell &message) {
    if (standby_kernels_.wanted()) {
        const MessageInHand in_hand(mailbox_);
        deliver(message.am_id, message.slot, message.length);
    } else {
        deliver(message.am_id, message.slot, message.length);
    }
}

void Port::report_impossible_id(uint8_t am_id) {
    GPUSHM_LOG_ONCE(error,
                    "a peer sent a message with the impossible id %u: it is dropped; look for "
                    "memory corruption in the job's processes",
                    am_id);
}

/** Most are short: a few instructions for these. */
inline unsigned Port::receive_messages() {
    unsigned count = 0;
    CellLabel label;
    unsigned char *payload;
    uint64_t reserved_end = 0;
    for (; count < kMessagesPerProgress; ++count) {
        if (count == kFewMessages && !mailbox_.empty()) {
            // Not for fewer: a sender has the line of that word taken from him.
            reserved_end = mailbox_.reserved_tickets();
        }
        mailbox_.fetch_backlog(reserved_end);
        if (mailbox_.receive_inline(&label, &payload)) {
            expect_answer(label.sender);
            deliver(label.am_id, payload, label.length);
            mailbox_.release();
        } else if (mailbox_.empty() || !receive_message()) {
            break;
        }
    }
    return count;
}

unsigned Port::advance() {
    CopyEngine::Scope scope(engine_);
    unsigned count = engine_.progress();
    count += receive_messages();
    // Without the driver's hooks nothing is counted, and housekeeping finds what was freed.
    if (const uint64_t now = allocations_.generation(); now != freed_seen_) {
        freed_seen_ = now;
        check_exports();
    }
    if (!active_.empty()) {
        count += progress_links();
    }
    if (count == 0) {
        keep_house_in_time();
    }
    if (links_may_be_finished_) {
        forget_finished_links();
    }
    standby_kernels_.tend(count == 0 && engine_.idle() ? StandbyKernel::Moment::idle
                                                       : StandbyKernel::Moment::busy);
    return count;
}

bool Port::receive_message() {
    ReceivedCell message;
    if (!mailbox_.receive(&message)) {
        return false;
    }
    dispatch(message);
    mailbox_.release();
    return true;
}

void Port::dispatch(const ReceivedCell &message) {
    switch (message.kind) {
        case CellKind::am_inline:
            expect_answer(message.sender);
            deliver(message.am_id, message.payload, message.length);
            break;
        case CellKind::am_slot:
            expect_answer(message.sender);
            deliver_slot(message);
            break;
        case CellKind::close:
            receive_close(message.sender);
            break;
        default:
            dispatch_to_link(message);
    }
}

/** A port closes its mailbox before it says so. What a broken peer says in the name of another is
 * not believed, where the other can be asked. */
void Port::receive_close(uint16_t sender) {
    const Link *link = known_link(sender);
    if (link != nullptr && !link->peer_ended()) {
        GPUSHM_LOG(error,
                   "process %d is said to be at its end, but has not closed its mailbox: ignored; "
                   "look for memory corruption in the job's processes",
                   link->peer().pid);
        return;
    }
    forget_sender(sender);
}

/** Nothing follows of a sender; its record may serve another. */
void Port::forget_sender(uint16_t sender) {
    if (Link *link = known_link(sender)) {
        link->receive_close();
    }
    link_of_sender_[sender] = nullptr;
    strangers_[sender] = false;
    unanswered_[sender] = false;
    mailbox_.free_sender(sender);
    look_for_finished_links();
}

void Port::dispatch_to_link(const ReceivedCell &message) {
    Link *link = sender_link(message.sender);
    // Of a peer that is dead or broken only messages count.
    if (link == nullptr || (link->failed() && message.kind != CellKind::am_ring)) {
        mailbox_.give_up(message.sender);  // else it might wait for ever
        return;
    }
    if (!as_possible([&] { hand_to(*link, message); })) {
        link->fail_for_want_of_memory();
    }
}

void Port::report_wrong_length(const Link &link) {
    GPUSHM_LOG_ONCE(error,
                    "process %d sent a control message of a wrong kind or length: it is dropped; "
                    "look for memory "
                    "corruption in the job's processes",
                    link.peer().pid);
}

void Port::hand_to(Link &link, const ReceivedCell &message) {
    const auto with = [&](auto payload, auto &&receive) {
        if (read_payload(message, &payload)) {
            receive(payload);
        } else {
            report_wrong_length(link);
        }
    };
    switch (message.kind) {
        case CellKind::am_ring:
            return with(RingSpan(), [&](const RingSpan &span) {
                unsigned char *const data =
                    span.length <= kSlotBytes ? link.open_span(span) : nullptr;
                if (data != nullptr) {
                    deliver(message.am_id, data, span.length);
                    link.close_span(span);
                } else if (span.length > kSlotBytes) {
                    report_wrong_length(link);
                }
            });
        case CellKind::ring_offer:
            return with(RingOffer(), [&](const auto &offer) { link.receive_ring_offer(offer); });
        case CellKind::ring_answer:
            return with(RingAnswer(),
                        [&](const auto &answer) { link.receive_ring_answer(answer); });
        case CellKind::chunk_slot:
            return with(TransferChunk(), [&](const auto &chunk) {
                link.receive_chunk(chunk, message.slot, message.length);
            });
        case CellKind::chunk_ring:
            return with(TransferChunk(),
                        [&](const auto &chunk) { link.receive_chunk(chunk, nullptr, 0); });
        case CellKind::get_request:
            return with(GetRequest(), [&](const auto &get) { link.receive_get_request(get); });
        case CellKind::transfer_done:
            return with(TransferDone(),
                        [&](const auto &done) { link.receive_transfer_done(done); });
        case CellKind::map_request:
            return with(MapRequest(), [&](const auto &map) { link.receive_map_request(map); });
        case CellKind::map_answer:
            return with(MapAnswer(), [&](const auto &map) { link.receive_map_answer(map); });
        case CellKind::map_offer:
            return with(MapOffer(), [&](const auto &map) { link.receive_map_offer(map); });
        case CellKind::unmap_notice:
            return with(UnmapNotice(),
                        [&](const auto &notice) { link.receive_unmap_notice(notice); });
        case CellKind::help_request:
            return with(HelpRequest(), [&](const auto &help) { link.receive_help_request(help); });
        case CellKind::help_piece:
            return with(HelpPiece(), [&](const auto &piece) {
                link.receive_help_piece(piece, message.slot, message.length);
            });
        case CellKind::am_inline:
        case CellKind::am_slot:
        case CellKind::close:
            break;  // dispatch()
    }
    report_wrong_length(link);
}

/** The link to the process that sent a message; made when it is the first that needs an answer. */
Link *Port::sender_link(uint16_t sender) {
    if (link_of_sender_[sender] != nullptr) {
        return link_of_sender_[sender];
    }
    const std::optional<MailboxAddress> address = mailbox_.sender_address(sender);
    const char *why = "its record in our mailbox is empty";
    Link *found = address ? link(*address, &why) : nullptr;
    if (found == nullptr && !unanswered_[sender]) {
        GPUSHM_LOG(error,
                   "cannot answer process %d: %s; until that changes, its transfers and its "
                   "messages from GPU memory are dropped",
                   address ? address->pid : -1, why);
    }
    unanswered_[sender] = found == nullptr;
    link_of_sender_[sender] = found;
    return found;
}

unsigned Port::progress_links() {
    unsigned count = 0;
    // By index: a completion may start work on another link.
    for (size_t i = 0; i < active_.size(); ++i) {
        Link &link = *active_[i];
        if (!as_possible([&] { count += link.progress(); })) {
            link.fail_for_want_of_memory();
        }
        if (link.take_failure()) {
            report_failure(link);
        }
    }
    active_.erase(std::remove_if(active_.begin(), active_.end(),
                                 [](const Link *link) { return !link->busy(); }),
                  active_.end());
    return count;
}

/** To the user, and to the peer, who may live. */
void Port::report_failure(Link &link) {
    for (uint16_t sender = 0; sender < kMaxSenders; ++sender) {
        if (link_of_sender_[sender] == &link) {
            mailbox_.give_up(sender);
        }
    }
    callbacks_.link_failed(callbacks_.argument, link);
    look_for_finished_links();
}

/** Peers come and go as long as the port is there. */
void Port::forget_finished_links() {
    links_may_be_finished_ = false;
    const auto forgotten = [this](const std::unique_ptr<Link> &link) {
        if (!link->finished()) {
            return false;
        }
        // Of a dead peer messages may be left in the mailbox that lead to its link.
        if (link->has_memory() && !mailbox_.has_sender(link->peer().cookie)) {
            link->release_memory();
        }
        return !link->has_memory() && !link->has_user();
    };
    const auto first = std::stable_partition(links_.begin(), links_.end(),
                                             [&](const auto &link) { return !forgotten(link); });
    for (auto link = first; link != links_.end(); ++link) {
        active_.erase(std::remove(active_.begin(), active_.end(), link->get()), active_.end());
        std::replace(link_of_sender_.begin(), link_of_sender_.end(), link->get(),
                     static_cast<Link *>(nullptr));
    }
    links_.erase(first, links_.end());
    // Twice as many as now: so that looking costs each new link the same.
    links_to_look_at_ = std::max<size_t>(16, 2 * links_.size());
}

void Port::housekeeping() {
    if (mailbox_.skip_dead_sender()) {
        GPUSHM_LOG_ONCE(warn,
                        "a peer died while it wrote into our mailbox: its message is dropped");
    }
    while (const std::optional<uint16_t> dead = mailbox_.find_dead_sender()) {
        Link *link = known_link(*dead);
        if (link != nullptr && !link->peer_closed()) {  // else it found no room to say so
            link->fail();
        }
        forget_sender(*dead);
    }
    check_exports();
    run_deferred_frees();
    if (config_.peer_mapping) {
        map_early();
    }
}

/** Peers are told of memory that they may map, and what they told of is mapped. */
void Port::map_early() {
    const bool is_awaited = std::any_of(links_.begin(), links_.end(),
                                        [](const auto &link) { return link->awaits_offer(); });
    const ContextLifetimeLock alive(ContextLifetimeLock::Mode::alive_exclusive);
    if (!alive) {
        return;  // later
    }
    const std::optional<BufferKey> own = is_awaited ? announced_memory() : std::nullopt;
    for (const std::unique_ptr<Link> &link : links_) {
        as_possible([&] { link->map_early(own); });
    }
}

void Port::check_exports() {
    for (const std::unique_ptr<Link> &link : links_) {
        link->check_exports();
    }
}

bool Port::arm() {
    // A mailbox with a cell that is never published cannot be armed.
    if (mailbox_.skip_dead_sender()) {
        return false;
    }
    return active_.empty() && !links_may_be_finished_ && mailbox_.arm();
}

}  // namespace gpushm
