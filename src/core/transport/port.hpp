// SPDX-License-Identifier: BSD-3-Clause
// A port: one mailbox of this process, and its connections to the ports of other processes.
#pragma once

#include "core/base/poll_interval.hpp"
#include "core/memory/allocation_table.hpp"
#include "core/memory/registration_table.hpp"
#include "core/shm/mailbox_layout.hpp"
#include "core/shm/mailbox_receiver.hpp"
#include "core/standby/standby_registry.hpp"
#include "core/transport/connection.hpp"
#include "core/transport/port_services.hpp"

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

/** What a port tells its user; called from progress(). */
struct PortCallbacks {
    void *argument;
    /** `am_id` < kActiveMessageIds; `data` is valid during the call. Bytes that are copied to a GPU
     * must not be written before: the GPU may have read them already (StandbyJob::next). */
    void (*active_message)(void *argument, uint8_t am_id, void *data, size_t length);
    void (*connection_failed)(void *argument, Connection &connection);
};

/** One thread at a time. */
class Port final : public PortServices, private RegistrationUser {
public:
    /** Null, logged, when there is no memory or no descriptor. */
    static std::unique_ptr<Port> create(const PortConfig &config, const PortCallbacks &callbacks);
    /** In a forked child it ends the child's copy only: the segments and the copies that are under
     * way belong to the parent (Segment). */
    ~Port();

    /** The connection to a peer, made at the first call. It belongs to the port and lives at least
     * as long as it has users (Connection::add_user) and the peer lives. Null, with the reason in
     * `*why`, when the peer cannot be reached. */
    Connection *connect(const MailboxAddress &peer, const char **why);

    /** Receives and advances; the number of things that happened. Not from within a callback. */
    unsigned progress() {
        enter();
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

    /** Nothing is under way on any connection. */
    bool idle() const { return active_.empty(); }

    void end_own_pushes() override;

private:
    Port(const PortConfig &config, const PortCallbacks &callbacks, MailboxReceiver mailbox);
    /** Short, because a message that arrives finds a waiting process in the midst of it. */
    bool something_to_do() const {
        return !mailbox_.empty() || !engine_.idle() || !active_.empty() ||
               connections_may_be_finished_ || allocations_.generation() != freed_seen_;
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
    void dispatch_to_connection(const ReceivedCell &message);
    void deliver_span(Connection &connection, const ReceivedCell &message);
    void receive_close(uint16_t sender);
    void forget_sender(uint16_t sender);
    Connection *find_connection(const MailboxAddress &peer) const;
    inline Connection *known_connection(uint16_t sender);
    Connection *sender_connection(uint16_t sender);
    unsigned progress_connections();
    bool reads_host_memory() const;
    unsigned help_peers();
    void report_failure(Connection &connection);
    void forget_finished_connections();
    void housekeeping();
    void check_exports();
    void keep_access();

    /** By sender: the registration into which it has not ended a write. */
    std::map<uint16_t, uint64_t> given_up_writes_;
    PortCallbacks callbacks_;
    std::vector<std::unique_ptr<Connection>> connections_;
    size_t connections_to_look_at_ = 16;  // with as many, peers may have gone without a word
    std::array<Connection *, kMaxSenders> connection_of_sender_ = {};
    /** Senders to whom there was no connection when it was looked for. */
    std::bitset<kMaxSenders> strangers_;
    std::bitset<kMaxSenders> unanswered_;  // senders that could not be answered; it was logged
    PollInterval since_housekeeping_{3'000'000};  // it makes system calls
    const AllocationTable &allocations_ = AllocationTable::instance();
    StandbyKernels &standby_kernels_ = StandbyKernels::instance();
    uint64_t freed_seen_ = 0;  // its generation()
};

}  // namespace gpushm
