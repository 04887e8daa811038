// SPDX-License-Identifier: BSD-3-Clause
// How the two ranks of a communicator agree that gpushm, and not Open MPI, runs their
// MPI_Allreduce.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace gpushm::openmpi {

/** Both ranks call the same functions in the same order, because what they call them for depends
 * only on what MPI requires to be equal on both: the operation, the datatype and the count.
 *
 * A peer without gpushm takes part in nothing but MPI's own operations, so no rank may wait for it.
 * Protocol, in which operations are numbered from 0:
 * - Each rank sends its version before operation 0, which Open MPI runs, and afterwards looks
 *   whether that of the peer has arrived. (Messages of UCX between two processes arrive in the
 * order in which they were sent, so it has arrived before the data of the operation.)
 * - Before operation 1, each rank sends whether it has seen the peer's version. A rank that has
 * seen it knows that the peer does so, too, and waits for that. Both ranks agree if both have seen
 * it. So both know the same, even if a version arrives late.
 * - Ranks that agree ask each other whether their buffers are in GPU memory, in operations 1, 2, 5,
 *   12, ..., at most 255 operations apart. Between the questions both assume the last answers. A
 *   wrong assumption costs time only: either way takes all kinds of memory.
 *
 * `Messages`: PeerMessages. */
template <typename Messages>
class PairAgreement {
public:
    explicit PairAgreement(Messages messages) : messages_(std::move(messages)) {}

    /** Call before each operation of `bytes`, with whether this rank prefers gpushm's way. Whether
     * both ranks take it. */
    bool begin(size_t bytes, bool prefers) {
        if (stage_ == Stage::operation_0 && !messages_.send_notice(kVersion)) {
            stage_ = Stage::apart;
        }
        if (stage_ == Stage::operation_1) {
            stage_ = agree() ? Stage::agreed : Stage::apart;
        }
        return stage_ == Stage::agreed && take_way(&ways_[highest_bit(bytes)], prefers);
    }

    /** Call after each operation that Open MPI has run, with whether it has succeeded. */
    void end(bool succeeded) {
        if (stage_ == Stage::operation_0) {
            has_seen_version_ = succeeded && messages_.take_notice() == kVersion;
            stage_ = Stage::operation_1;
        }
    }

private:
    enum class Stage { operation_0, operation_1, agreed, apart };

    /** Of operations whose sizes have one highest bit. */
    struct Way {
        bool is_ours = false;
        unsigned apart = 0;  // the binary logarithm of the operations between two questions
        unsigned until = 0;  // operations until the next question
    };

    static constexpr uint32_t kVersion = 1;  // of what the ranks do once they have agreed
    static constexpr uint32_t kSeen = 1;
    static constexpr uint32_t kNotSeen = 0;
    static constexpr unsigned kMostApart = 8;

    bool agree() {
        return messages_.send_notice(has_seen_version_ ? kSeen : kNotSeen) && has_seen_version_ &&
               messages_.await_notice() == kSeen;
    }

    bool take_way(Way *way, bool prefers) {
        if (way->until == 0) {
            way->is_ours = messages_.exchange_byte(prefers ? 1 : 0) == 1 && prefers;
            way->apart = std::min(way->apart + 1, kMostApart);
            way->until = (1u << way->apart) - 1;  // odd: a program may alternate between buffers
        }
        --way->until;
        return way->is_ours;
    }

    static size_t highest_bit(size_t bytes) {
        return 63 - static_cast<size_t>(__builtin_clzll(bytes | 1));
    }

    Messages messages_;
    Stage stage_ = Stage::operation_0;
    bool has_seen_version_ = false;
    std::array<Way, 64> ways_;
};

}  // namespace gpushm::openmpi
