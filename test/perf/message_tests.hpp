// SPDX-License-Identifier: BSD-3-Clause
// The two measurements: one message, and many under way together.
#pragma once

#include "figures.hpp"
#include "message_buffers.hpp"
#include "ucp_program.hpp"

#include <vector>

namespace gpushm::perf {

/** Both sides call the same functions with the same arguments. What arrived is checked; wrong data
 * throws std::runtime_error. Figures are those of side 0. */
class MessageTests {
public:
    /** `one_way`: latency() is to measure one direction only, which is that from side 0. */
    MessageTests(const MeasuringSide &here, MessageBuffers &source, MessageBuffers &destination,
                 bool one_way);

    /** Messages of `size` bytes for `seconds`, to let everything that is done once be done; none
     * where buffers are renewed, so that there is always something to be done. */
    void warm_up(size_t size, double seconds);

    /** us one way. Half a round trip; of one direction, or where buffers are prepared before each
     * message, from the sender's call to the receiver's completion. */
    Figures latency(size_t size, const Effort &effort);

    /** us a message, with window_of(size) of them under way: from the first call of the sender
     * until both sides are ready. */
    Figures window(size_t size, const Effort &effort);

private:
    bool measures_one_way() const;
    std::vector<double> ping_pong(uint64_t count);
    std::vector<double> one_way(uint64_t count, unsigned messages);
    double send_messages(unsigned messages);
    void receive_messages(unsigned messages);
    void check_ping_pong();
    uint64_t seed_of(int sender) const;

    const MeasuringSide here_;
    Side &side_;
    const UcpConnection &connection_;
    MessageBuffers &source_;
    MessageBuffers &destination_;
    const bool one_way_;
    size_t size_ = 0;
    uint64_t contents_ = 0;  // counts what has been sent, alike on both sides
    std::vector<ucs_status_ptr_t> requests_;
};

}  // namespace gpushm::perf
