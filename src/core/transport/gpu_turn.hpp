// SPDX-License-Identifier: BSD-3-Clause
// Whose turn it is on a GPU on which the programs of two processes launch kernels.
#pragma once

#include "core/base/monotonic_clock.hpp"
#include "core/cuda/driver_watch.hpp"

#include <atomic>
#include <cstdint>

namespace gpushm {

/** The GPU runs kernels of one process at a time. It turns to another one, which takes 0.14 ms,
 * when that one has something to do and the former has not. Where two programs launch kernels, wait
 * for them and exchange messages, the one that comes to MPI last has the GPU. Its kernels run at
 * once, so it copies for both. If it is also the first one to launch kernels again, the GPU turns
 * once for each exchange, else twice (doc/decisions/gpu-turns.md).
 *
 * A wrong guess costs time only. One thread at a time. */
class GpuTurn {
public:
    /** The process uses the port, in each progress. It has come from its program if that has
     * launched kernels since the last time. */
    void enter() {
        const uint64_t launches = watch_.launches.load(std::memory_order_acquire);
        if (launches != launches_seen_) {
            come(launches);
        }
        if (is_contended_) {
            note_entry(monotonic_nanoseconds());
        }
    }

    /** Progress ends that had something to do. */
    void leave() {
        if (is_contended_) {
            last_at_ = monotonic_nanoseconds();
        }
    }

    /** A connection to a process on a GPU of this one was made (1) or has ended (-1). */
    void count_peer(int change) {
        peers_ += change;
        is_contended_ = is_contended_ && peers_ != 0;
    }
    /** Whether the programs of this process and of a peer compute on one GPU. */
    void set_contended(bool contended) { is_contended_ = contended; }

    /** Whether copies that kernels could make within the GPU are made by the process whose turn it
     * is, or by none: where more than two processes take turns, or this program launches kernels
     * right behind its exchange of messages. Else the GPU turns between them in any case. */
    bool counts() const { return is_contended_ && (peers_ > 1 || launching_ns_ != 0); }

    /** Whether the GPU has turned to this process: its program has waited for that, and came or
     * copied for both a short time ago. A program that does not wait for its kernels never has the
     * turn. */
    bool is_own() const {
        return peers_ == 1 && has_waited_ && monotonic_nanoseconds() < own_until_;
    }
    /** This process copies within the GPU in its turn. */
    void keep() { own_until_ = monotonic_nanoseconds() + kShortNs; }

    /** A message has arrived in GPU memory. */
    void note_arrival() {
        if (is_contended_) {
            has_arrived_ = true;
            has_gone_on_ = false;
            last_at_ = monotonic_nanoseconds();
        }
    }
    /** That was a message of the peer whose turn it is, and no other transfer is under way. Waits
     * until the peer has most likely launched its next kernels, as long as this process took
     * before; but only for the last such message of an exchange, as many as there were before. */
    void let_peer_launch();

private:
    static constexpr uint64_t kShortNs = 70'000;  // half of what the GPU takes to turn
    // More than lies between two calls of progress while MPI waits, and less than a program takes
    // to wait for a stream, or a collective operation for a copy.
    static constexpr uint64_t kGapNs = 2500;

    void note_entry(uint64_t now) {
        has_gone_on_ = has_gone_on_ || (has_arrived_ && now - last_at_ > kGapNs);
        last_at_ = now;
    }
    void come(uint64_t launches);
    void learn(uint64_t launched_at);

    const DriverWatch &watch_ = DriverWatch::instance();
    uint64_t launches_seen_ = watch_.launches.load(std::memory_order_relaxed);
    int peers_ = 0;
    bool is_contended_ = false;
    bool has_waited_ = false;
    // Since it came: whether a message has arrived, and whether the process came back behind the
    // last one without launching kernels.
    bool has_arrived_ = false;
    bool has_gone_on_ = false;
    unsigned ends_ = 0;         // calls of let_peer_launch() since it came
    unsigned ends_before_ = 0;  // when it came with some for the last time
    // ns, the points in time of CLOCK_MONOTONIC
    uint64_t own_until_ = 0;     // if it has waited
    uint64_t last_at_ = 0;       // it used the port, while that is contended
    uint64_t launching_ns_ = 0;  // of the program, right behind a message; 0: it does not do so
};

}  // namespace gpushm
