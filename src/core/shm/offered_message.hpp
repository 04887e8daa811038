// SPDX-License-Identifier: BSD-3-Clause
// Short messages that lie in GPU memory until the sender's program needs that memory again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace gpushm {

/** How many messages of a port may be offered at a time. */
constexpr uint32_t kOfferedMessages = 32;

/** One use of an OfferedMessage, as a remote key names it. */
struct OfferUse {
    uint32_t index = 0;  // in the sender's mailbox
    uint32_t id = 0;     // unique in the sender's mailbox; 0: the message is not offered
    bool exists() const { return id != 0 && index < kOfferedMessages; }
};

/** One message, in the mailbox segment of the process that sends it. The receiver copies it from
 * the sender's GPU memory if it comes early; then the sender waits for it. Otherwise the sender
 * copies the message to `data` and goes on, and the receiver takes it from there.
 *
 * `state` is id << 32 | Phase. The sender opens it (store-release) before it sends the id. Then
 * each side tries one change by compare-and-swap (acq_rel) that expects the id and `open`: the
 * receiver to `claimed`, before it reads the GPU memory, and the sender to `complete`, after the
 * bytes are in `data`. So the program's memory is free for the sender when its change has
 * succeeded. The receiver reads `data` behind an acquire load that shows `complete`. The sender
 * stores 0 (release) when UCP has completed or given up the message; a receiver that sees another
 * id afterwards drops what it has read.
 *
 * A sender that dies is noticed by the receiver's connection; `data` stays readable. A receiver
 * that dies behind its claim is noticed by UCP, as with every message that waits for its receiver.
 * A receiver that writes nonsense can only spoil messages that it is sent, or make the sender wait.
 */
struct alignas(64) OfferedMessage {
    enum class Phase : uint32_t { ended, open, claimed, complete };
    static constexpr size_t kBytes = 2048;

    std::atomic<uint64_t> state;
    alignas(64) unsigned char data[kBytes];

    // ---- for the sender
    void open(uint32_t id) { state.store(word(id, Phase::open), std::memory_order_release); }
    /** False: the receiver has claimed it. */
    bool complete(uint32_t id) { return change(id, Phase::complete); }
    void end() { state.store(0, std::memory_order_release); }

    // ---- for the receiver
    /** False: it is not open. */
    bool claim(uint32_t id) { return change(id, Phase::claimed); }

    /** `ended` also where another use has begun, and where the word makes no sense. */
    Phase phase(uint32_t id) const {
        const uint64_t seen = state.load(std::memory_order_acquire);
        for (const Phase phase : {Phase::open, Phase::claimed, Phase::complete}) {
            if (seen == word(id, phase)) {
                return phase;
            }
        }
        return Phase::ended;
    }

private:
    static uint64_t word(uint32_t id, Phase phase) {
        return uint64_t{id} << 32 | static_cast<uint32_t>(phase);
    }
    bool change(uint32_t id, Phase to) {
        uint64_t expected = word(id, Phase::open);
        return state.compare_exchange_strong(expected, word(id, to), std::memory_order_acq_rel,
                                             std::memory_order_relaxed);
    }
};

}  // namespace gpushm
