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
 * the sender's GPU memory if it comes early; then the sender waits for that, but not for long.
 * Otherwise the sender copies the message to `data` and goes on, and the receiver takes it from
 * there.
 *
 * `state` is id << 32 | Phase. The sender opens it (store-release) before it sends the id. Then
 * both change it by compare-and-swap (acq_rel) that expects the id:
 *
 *   open -> claimed      by the receiver, before it reads the sender's memory itself
 *   claimed -> done      by the receiver, when it has read it: the sender's memory is free
 *   claimed -> asked     by the receiver, which cannot copy, before it asks the sender for the
 *                        block: the sender waits for UCP
 *   open -> complete     by the sender, when the bytes are in `data`
 *   claimed -> complete  the same, when the receiver is late: the receiver drops what it has read
 *                        itself, and the mapping that it reads by stays readable
 *   open -> withdrawn    by the sender, which cannot copy: the receiver asks for the block
 *
 * The receiver reads `data` behind an acquire load that shows `complete`. The sender stores 0
 * (release) when UCP has completed or given up the message; a receiver that sees another id
 * afterwards drops what it has read.
 *
 * If the sender dies, the receiver's connection notices it; `data` stays readable. If the receiver
 * dies behind a claim, the sender completes the message and goes on; behind `asked`, UCP notices
 * it, as with a long message. A receiver that writes nonsense can only spoil messages that it is
 * sent, or make the sender wait for UCP. */
struct alignas(64) OfferedMessage {
    enum class Phase : uint32_t { ended, open, claimed, done, asked, complete, withdrawn };
    static constexpr size_t kBytes = 2048;

    std::atomic<uint64_t> state;
    alignas(64) unsigned char data[kBytes];

    // ---- for the sender
    void open(uint32_t id) {
        state.store(word(id, Phase::open), std::memory_order_release);
        std::atomic_thread_fence(std::memory_order_release);  // before new data
    }
    /** False: the receiver has claimed it. */
    bool complete(uint32_t id) { return change(id, Phase::open, Phase::complete); }
    /** False: the receiver has read it. */
    bool complete_claimed(uint32_t id) { return change(id, Phase::claimed, Phase::complete); }
    void withdraw(uint32_t id) { (void)change(id, Phase::open, Phase::withdrawn); }
    void end() { state.store(0, std::memory_order_release); }

    // ---- for the receiver
    /** False: it is not open. */
    bool claim(uint32_t id) { return change(id, Phase::open, Phase::claimed); }
    /** False: the sender did not wait, and may have changed what was read. */
    bool confirm(uint32_t id) { return change(id, Phase::claimed, Phase::done); }
    /** False: the sender has copied the message, or does nothing more for it. */
    bool ask(uint32_t id) {
        return change(id, Phase::claimed, Phase::asked) || phase(id) == Phase::asked ||
               phase(id) == Phase::withdrawn;
    }

    /** `ended` also where another use has begun, and where the word makes no sense. */
    Phase phase(uint32_t id) const {
        const uint64_t seen = state.load(std::memory_order_acquire);
        for (const Phase phase : {Phase::open, Phase::claimed, Phase::done, Phase::asked,
                                  Phase::complete, Phase::withdrawn}) {
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
    bool change(uint32_t id, Phase from, Phase to) {
        uint64_t expected = word(id, from);
        return state.compare_exchange_strong(expected, word(id, to), std::memory_order_acq_rel,
                                             std::memory_order_relaxed);
    }
};

}  // namespace gpushm
