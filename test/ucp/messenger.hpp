// SPDX-License-Identifier: BSD-3-Clause
// One message by any of UCP's operations, between two processes that both know what comes.
#pragma once

#include "allocation.hpp"
#include "scenarios.hpp"
#include "session.hpp"

namespace gpushm::ucp_test {

enum class Operation { tag, stream, am, put, get };

const char *to_string(Operation operation);

/** For a Session whose Messenger uses all operations. */
constexpr uint64_t kAllFeatures =
    UCP_FEATURE_TAG | UCP_FEATURE_STREAM | UCP_FEATURE_AM | UCP_FEATURE_RMA;

class Messenger {
public:
    /** Both must outlive it. Only one at a time for a session. */
    Messenger(Peer &peer, Session &session);
    ~Messenger();
    Messenger(const Messenger &) = delete;
    Messenger &operator=(const Messenger &) = delete;

    /** One message from or into prepared memory; fails the test when the operation fails. Returns
     * when the own part has ended: the sender may overwrite, the receiver may look. */
    void transfer(Operation operation, bool sending, GuardedAllocation &memory,
                  const Placement &place);

    /** Progresses until the other process is here too. */
    void barrier();

private:
    struct ActiveMessage {
        Messenger &messenger;
        GuardedAllocation *memory = nullptr;
        const Placement *place = nullptr;
        bool arrived = false;
        ucs_status_ptr_t fetching = nullptr;  // the data of a rendezvous
    };
    static ucs_status_t on_active_message(void *argument, const void *header, size_t header_length,
                                          void *data, size_t length,
                                          const ucp_am_recv_param_t *info);
    void set_handler(void *argument);

    void send_tagged(const void *from, size_t size);
    void receive_tagged(void *to, size_t capacity, size_t size);
    void send_stream(const void *from, size_t size);
    void receive_stream(void *to, size_t size);
    void send_active_message(const void *from, size_t size);
    void receive_active_message(GuardedAllocation &memory, const Placement &place);
    void access_remote(bool put, void *own, size_t size);
    void expose(void *memory, size_t size);

    Peer &peer_;
    Session &session_;
    size_t n_ = 0;  // messages so far, in both directions
    ActiveMessage awaited_;
};

}  // namespace gpushm::ucp_test
