// SPDX-License-Identifier: BSD-3-Clause
// A port: one mailbox of this process, and its links to the ports of other processes.
#pragma once

#include "core/copy_engine.hpp"
#include "core/link.hpp"
#include "core/mailbox.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace gpushm {

struct PortConfig {
    size_t ring_bytes;        // of a staging ring
    size_t gpu_chunk_bytes;   // of a transfer that a GPU reads or writes
    size_t host_chunk_bytes;  // of one that both CPUs copy; fits their cache
    uint32_t cell_count;      // of the mailbox, a power of two
};

/** What a port tells its user; called from progress(). */
struct PortCallbacks {
    void *argument;
    /** `data` is valid during the call. */
    void (*active_message)(void *argument, uint8_t am_id, void *data, size_t length);
    void (*link_failed)(void *argument, Link &link);
};

/** One thread at a time. */
class Port {
public:
    /** Null, logged, when there is no memory or no descriptor. */
    static std::unique_ptr<Port> create(const PortConfig &config, const PortCallbacks &callbacks);
    ~Port();

    MailboxAddress address() const { return mailbox_.address(); }
    const PortConfig &config() const { return config_; }
    CopyEngine &engine() { return engine_; }

    /** The link to a peer, made at the first call; belongs to the port and lives as long. Null, with
     *  the reason in `*why`, when the peer cannot be reached. */
    Link *link(const MailboxAddress &peer, const char **why);

    /** Receives and advances; the number of things that happened. */
    unsigned progress();

    /** A descriptor that is readable when arm() has returned true and a message came. */
    int event_fd() const { return mailbox_.event_fd(); }
    /** False when progress() has something to do, now or soon. */
    bool arm();

    /** Nothing is under way on any link. */
    bool idle() const { return active_.empty(); }

    /** A link has work; it is progressed until it has none. */
    void activate(Link &link);

private:
    Port(const PortConfig &config, const PortCallbacks &callbacks, MailboxReceiver mailbox);
    unsigned receive_messages();
    void dispatch(const ReceivedCell &message);
    void dispatch_to_link(const ReceivedCell &message);
    void forget_sender(uint16_t sender);
    Link *find_link(const MailboxAddress &peer) const;
    Link *sender_link(uint16_t sender);
    unsigned progress_links();
    void housekeeping();

    PortConfig config_;
    PortCallbacks callbacks_;
    MailboxReceiver mailbox_;
    CopyEngine engine_;
    std::vector<std::unique_ptr<Link>> links_;
    std::array<Link *, kMaxSenders> link_of_sender_ = {};
    std::vector<Link *> active_;
    uint32_t idle_polls_ = 0;
};

}  // namespace gpushm
