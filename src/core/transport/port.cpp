// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/port.hpp"

#include "core/base/drop_if.hpp"
#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/base/spare_descriptor.hpp"
#include "core/mapping/announced_memory.hpp"
#include "core/memory/memory_query.hpp"
#include "core/memory/registration_table.hpp"
#include "core/reclaim/deferred_free.hpp"
#include "core/reclaim/context_lifetime.hpp"
#include "core/shm/message_in_hand.hpp"
#include "core/standby/gpu_sharing.hpp"
#include "core/transport/control_dispatch.hpp"

#include <algorithm>
#include <cstring>

namespace gpushm {
namespace {

// Messages: enough to amortise a call, few enough that connections are served between.
constexpr unsigned kMessagesPerProgress = 16;

// Messages. Where more come at once, most likely others follow.
constexpr unsigned kFewMessages = 4;

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
    : PortServices(config, std::move(mailbox)), callbacks_(callbacks) {
    RegistrationTable::instance().publish(mailbox_.registrations(), this);
}

Port::~Port() {
    if (is_inherited()) {
        return;
    }
    RegistrationTable::instance().cancel(mailbox_.registrations(), this);
    mailbox_.close();
    for (const auto &connection : connections_) {
        connection->send_close();
    }
    // One by one, because each ends what peers still write by a SharedTransfer, and asks the others
    // to do so.
    while (!connections_.empty()) {
        const std::unique_ptr<Connection> last = std::move(connections_.back());
        connections_.pop_back();
    }
    StandbyKernels::instance().log_use();
    mailbox_.discard();
}

Connection *Port::find_connection(const MailboxAddress &peer) const {
    for (const auto &connection : connections_) {
        if (connection->peer().cookie == peer.cookie) {
            return connection.get();
        }
    }
    return nullptr;
}

Connection *Port::connect(const MailboxAddress &peer, const char **why) {
    enter();
    if (Connection *known = find_connection(peer)) {
        return known;
    }
    std::unique_ptr<Connection> connection = Connection::connect(*this, peer, why);
    if (!connection) {
        return nullptr;
    }
    if (active_.capacity() <= connections_.size()) {
        active_.reserve(2 * connections_.size() + 1);  // activate() allocates nothing
    }
    connections_.push_back(std::move(connection));
    strangers_.reset();
    if (connections_.size() >= connections_to_look_at_) {
        look_for_finished_connections();
    }
    return connections_.back().get();
}

void Port::end_own_pushes() {
    for (const auto &connection : connections_) {
        connection->end_own_pushes();
    }
}

/** A peer that writes to a registration that has ended. A write that was given up for its length
 * does not count: most likely the peer does nothing, or its place would be another sender's. */
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
        for (const auto &connection : connections_) {
            as_possible([&] { connection->end_copies(registration); });
        }
    });
}

void Port::stop_waiting(uint64_t registration) {
    while (const std::optional<MailboxReceiver::Writer> writer = find_writer(registration)) {
        GPUSHM_LOG(error,
                   "process %d does not end a copy into memory that this process has deregistered, "
                   "and may still write there: see whether it is stopped or hangs",
                   writer->pid);
        if (!as_possible([&] { given_up_writes_[writer->sender] = registration; })) {
            return;
        }
    }
}

/** The connection to a sender, if there is one. */
inline Connection *Port::known_connection(uint16_t sender) {
    Connection *&connection = connection_of_sender_[sender];
    if (connection == nullptr && !strangers_[sender]) {
        const std::optional<MailboxAddress> address = mailbox_.sender_address(sender);
        connection = address ? find_connection(*address) : nullptr;
        strangers_[sender] = connection == nullptr;
    }
    return connection;
}

inline void Port::expect_answer(uint16_t sender) {
    if (Connection *connection = known_connection(sender)) {
        connection->expect_answer();
    }
}

/** The receiver of a message uses the id as an index. */
inline void Port::deliver(uint8_t am_id, void *data, size_t length) {
    if (am_id < kActiveMessageIds) {
        callbacks_.active_message(callbacks_.argument, am_id, data, length);
    } else {
        report_impossible_id(am_id);
    }
}

/** A standby kernel that copies a message to a GPU may read the next one ahead. */
inline void Port::deliver_slot(const ReceivedCell &message) {
    std::optional<MessageInHand> in_hand;
    if (standby_kernels_.wanted()) {
        in_hand.emplace(mailbox_);
    }
    deliver(message.am_id, message.slot, message.length);
}

void Port::report_impossible_id(uint8_t am_id) {
    GPUSHM_LOG_ONCE(error,
                    "a peer sent a message with the impossible id %u: the message is dropped; look "
                    "for memory corruption in the job's processes",
                    am_id);
}

/** Most messages are short and take a few instructions here. */
inline unsigned Port::receive_messages() {
    unsigned count = 0;
    CellLabel label;
    unsigned char *payload;
    uint64_t reserved_end = 0;
    for (; count < kMessagesPerProgress; ++count) {
        if (count == kFewMessages && !mailbox_.empty()) {
            // Not for fewer, because the sender loses the cache line of that word.
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
        count += progress_connections();
    }
    if (count == 0) {
        keep_house_in_time();
    }
    if (connections_may_be_finished_) {
        forget_finished_connections();
    }
    standby_kernels_.tend(count == 0 && engine_.idle() ? StandbyKernel::Moment::idle
                                                       : StandbyKernel::Moment::busy);
    gpu_turn().leave();
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
            dispatch_to_connection(message);
    }
}

/** A port closes its mailbox before it says so. What a broken peer says in the name of another is
 * not believed, where the other can be asked. */
void Port::receive_close(uint16_t sender) {
    const Connection *connection = known_connection(sender);
    if (connection != nullptr && !connection->peer_ended()) {
        GPUSHM_LOG(error,
                   "process %d is reported to have ended, but has not closed its mailbox: the "
                   "report is ignored; look for memory corruption in the job's processes",
                   connection->peer().pid);
        return;
    }
    forget_sender(sender);
}

/** The sender sends nothing more; its record may serve another one. */
void Port::forget_sender(uint16_t sender) {
    if (Connection *connection = known_connection(sender)) {
        connection->receive_close();
    }
    connection_of_sender_[sender] = nullptr;
    strangers_[sender] = false;
    unanswered_[sender] = false;
    mailbox_.free_sender(sender);
    look_for_finished_connections();
}

void Port::dispatch_to_connection(const ReceivedCell &message) {
    Connection *connection = sender_connection(message.sender);
    // Messages of a peer that is dead or broken still count.
    if (connection == nullptr || (connection->failed() && message.kind != CellKind::am_ring)) {
        mailbox_.give_up(message.sender);  // else it might wait for ever
        return;
    }
    const bool handled = as_possible([&] {
        if (message.kind == CellKind::am_ring) {
            deliver_span(*connection, message);
        } else {
            hand_to(*connection, message);
        }
    });
    if (!handled) {
        connection->fail_for_want_of_memory();
    }
}

/** A message in the peer's ring. */
void Port::deliver_span(Connection &connection, const ReceivedCell &message) {
    RingSpan span;
    if (!read_payload(message, &span) || span.length > kSlotBytes) {
        report_wrong_length(connection);
        return;
    }
    if (unsigned char *const data = connection.ring_receiver().open_span(span)) {
        deliver(message.am_id, data, span.length);
        connection.ring_receiver().close_span(span);
    }
}

/** The connection to the process that sent a message; made when the message is the first that needs
 * an answer. */
Connection *Port::sender_connection(uint16_t sender) {
    if (connection_of_sender_[sender] != nullptr) {
        return connection_of_sender_[sender];
    }
    const std::optional<MailboxAddress> address = mailbox_.sender_address(sender);
    const char *why = "its record in the mailbox of this process is empty";
    Connection *found = address ? connect(*address, &why) : nullptr;
    if (found == nullptr && !unanswered_[sender]) {
        GPUSHM_LOG(error,
                   "cannot answer process %d: %s; until that changes, its transfers and its "
                   "messages from GPU memory are dropped",
                   address ? address->pid : -1, why);
    }
    unanswered_[sender] = found == nullptr;
    connection_of_sender_[sender] = found;
    return found;
}

unsigned Port::progress_connections() {
    unsigned count = 0;
    // By index: a completion may start work on another connection.
    for (size_t i = 0; i < active_.size(); ++i) {
        Connection &connection = *active_[i];
        if (!as_possible([&] { count += connection.progress(); })) {
            connection.fail_for_want_of_memory();
        }
        if (connection.take_failure()) {
            report_failure(connection);
        }
    }
    count += help_peers();
    drop_if(active_, [](const Connection *connection) { return !connection->busy(); });
    return count;
}

bool Port::reads_host_memory() const {
    return std::any_of(active_.begin(), active_.end(), [](Connection *connection) {
        return connection->transfers().host_reads().busy();
    });
}

/** Not while this process reads itself: its peers read as quickly as it writes. */
unsigned Port::help_peers() {
    unsigned count = 0;
    for (Connection *connection : active_) {
        if (connection->helper().busy() && !reads_host_memory()) {
            count += connection->helper().progress();
        }
    }
    return count;
}

/** Tells the user, and the peer, which may live. */
void Port::report_failure(Connection &connection) {
    for (uint16_t sender = 0; sender < kMaxSenders; ++sender) {
        if (connection_of_sender_[sender] == &connection) {
            mailbox_.give_up(sender);
        }
    }
    callbacks_.connection_failed(callbacks_.argument, connection);
    look_for_finished_connections();
}

/** Peers come and go as long as the port is there. */
void Port::forget_finished_connections() {
    connections_may_be_finished_ = false;
    const auto forgotten = [this](const std::unique_ptr<Connection> &connection) {
        if (!connection->finished()) {
            return false;
        }
        // The mailbox may still have messages of a dead peer, which lead to its connection.
        if (connection->has_memory() && !mailbox_.has_sender(connection->peer().cookie)) {
            connection->release_memory();
        }
        return !connection->has_memory() && !connection->has_user();
    };
    const auto first =
        std::stable_partition(connections_.begin(), connections_.end(),
                              [&](const auto &connection) { return !forgotten(connection); });
    for (auto connection = first; connection != connections_.end(); ++connection) {
        active_.erase(std::remove(active_.begin(), active_.end(), connection->get()),
                      active_.end());
        std::replace(connection_of_sender_.begin(), connection_of_sender_.end(), connection->get(),
                     static_cast<Connection *>(nullptr));
    }
    // Each leaves the list before it ends, because its end looks at all connections of the port.
    for (auto left = connections_.end() - first; left != 0; --left) {
        const std::unique_ptr<Connection> last = std::move(connections_.back());
        connections_.pop_back();
    }
    // Twice as many as now: so that looking costs each new connection the same.
    connections_to_look_at_ = std::max<size_t>(16, 2 * connections_.size());
}

void Port::housekeeping() {
    if (mailbox_.skip_dead_sender()) {
        GPUSHM_LOG_ONCE(warn,
                        "a peer died while it wrote a message into the mailbox of this process: "
                        "the message is dropped");
    }
    while (const std::optional<uint16_t> dead = mailbox_.find_dead_sender()) {
        Connection *connection = known_connection(*dead);
        if (connection != nullptr &&
            !connection->peer_closed()) {  // else it had no room for CellKind::close
            connection->fail();
        }
        forget_sender(*dead);
    }
    check_exports();
    run_deferred_frees();
    GpuSharing::instance().look_again();
    if (config_.peer_mapping && gpu_memory_was_met()) {
        keep_access();
    }
}

/** Tells peers of memory that they may map, and maps what they told of. Takes up to 12 ms, which a
 * program whose messages are host memory does not pay. */
void Port::keep_access() {
    const bool is_awaited =
        std::any_of(connections_.begin(), connections_.end(),
                    [](const auto &connection) { return connection->awaits_offer(); });
    const ContextLifetimeLock alive(ContextLifetimeLock::Mode::alive_exclusive);
    if (!alive) {
        return;  // later
    }
    const std::optional<BufferKey> own = is_awaited ? announced_memory() : std::nullopt;
    for (const auto &connection : connections_) {
        as_possible([&] { connection->keep_access(own); });
    }
}

void Port::check_exports() {
    for (const auto &connection : connections_) {
        connection->check_exports();
    }
}

bool Port::arm() {
    // A mailbox with a cell that is never published cannot be armed.
    if (mailbox_.skip_dead_sender()) {
        return false;
    }
    return active_.empty() && !connections_may_be_finished_ && mailbox_.arm();
}

}  // namespace gpushm
