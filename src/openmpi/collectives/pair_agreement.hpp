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

/** Both ranks call the same functions in the same order, because they do so for each MPI_Allreduce
 * of at least some size, and MPI requires the size to be equal on both.
 *
 * A peer without gpushm takes part in nothing but MPI's own operations, so no rank may wait for it.
 * Protocol, in which operations are numbered from 0:
 * - Each rank sends its version before operation 0, which Open MPI runs, and afterwards looks
 *   whether that of the peer has arrived. (Messages of UCX between two processes arrive in the
 * order in which they were sent, so it has arrived before the data of the operation.)
 * - Before operation 1, each rank sends whether it has seen the peer's version. A rank that has
 * seen it knows that the peer does so, too, and waits for that. Both ranks agree if both have seen
 * it. So both know the same, even if a version arrives late.
 * - Ranks that agree ask each other whether they prefer gpushm's way, which they take if both do:
 *   before each operation as long as they take it, otherwise ever more rarely, with up to 256
 *   operations between two questions. So gpushm runs no operation that a rank does not prefer, and
 *   Open MPI may run one that both prefer.
 *
 * `Messages`: PeerMessages. */
template <typename Messages>
class PairAgreement {
public:
    explicit PairAgreement(Messages messages) : messages_(std::move(messages)) {}

    /** Call before each operation of `bytes`. `prefers()`: whether this rank prefers gpushm's way.
     * Whether both ranks take it. */
    template <typename Prefers>
    bool begin(size_t bytes, const Prefers &prefers) {
        if (stage_ == Stage::operation_0 && !messages_.send_notice(kVersion)) {
            stage_ = Stage::apart;
        }
        if (stage_ == Stage::operation_1) {
            stage_ = agree() ? Stage::agreed : Stage::apart;
        }
        return stage_ == Stage::agreed && take_way(&ways_[highest_bit(bytes)], prefers);
    }

    /** Call after each operation that Open MPI has run. */
    void end() {
        if (stage_ == Stage::operation_0) {
            has_seen_version_ = messages_.take_notice() == kVersion;
            stage_ = Stage::operation_1;
        }
    }

    /** Whether the peer has not answered in operation 0. What it sends later is never received. */
    bool has_no_answer() const { return stage_ != Stage::operation_0 && !has_seen_version_; }

private:
    enum class Stage { operation_0, operation_1, agreed, apart };

    /** Of operations whose sizes have one highest bit. */
    struct Way {
        bool is_ours = false;
        unsigned apart = 0;  // the binary logarithm of the last `until`
        unsigned until = 0;  // so many operations without a question come first
    };

    // No other words are sent, and no two of them are equal.
    static constexpr uint32_t kVersion =
        0x67700002;  // of which calls ask, and of what both do then
    static constexpr uint32_t kSeen = 0x67700100;
    static constexpr uint32_t kNotSeen = 0x67700200;
    static constexpr unsigned kMostApart = 8;

    bool agree() {
        return messages_.send_notice(has_seen_version_ ? kSeen : kNotSeen) && has_seen_version_ &&
               messages_.await_notice() == kSeen;
    }

    template <typename Prefers>
    bool take_way(Way *way, const Prefers &prefers) {
        if (!way->is_ours && way->until > 0) {
            --way->until;
            return false;
        }
        const bool was_ours = way->is_ours;
        way->is_ours = ask(prefers());
        if (was_ours && !way->is_ours) {
            way->apart = 0;
        } else if (!way->is_ours) {
            way->apart = std::min(way->apart + 1, kMostApart);
            way->until = 1u << way->apart;  // even: a program may alternate between two buffers
        }
        return way->is_ours;
    }

    bool ask(bool prefers) { return messages_.exchange_byte(prefers ? 1 : 0) == 1 && prefers; }

    static size_t highest_bit(size_t bytes) {
        return 63 - static_cast<size_t>(__builtin_clzll(bytes | 1));
    }

    Messages messages_;
    Stage stage_ = Stage::operation_0;
    bool has_seen_version_ = false;
    std::array<Way, 64> ways_;
};

}  // namespace gpushm::openmpi
