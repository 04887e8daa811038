// SPDX-License-Identifier: BSD-3-Clause
// Who copies between two processes whose programs launch kernels on one GPU (GpuTurn).
#include "test/gtest/core/transport/port_gpu_peer.hpp"

#include "core/base/monotonic_clock.hpp"
#include "core/standby/gpu_sharing.hpp"

#include <chrono>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 64 << 10;

class Neighbours {
public:
    bool start() {
        if (!pair_.start()) {
            return false;
        }
        remote_ = pair_.peer.allocate(kBytes);
        local_.emplace(MemoryKind::device, kBytes);
        return true;
    }

    /** Until each program has seen the other one's kernels. */
    bool compute() {
        return progress_until({&*pair_.port}, [this] {
            pair_.peer.launch();
            launch_as_program();
            return GpuSharing::instance().others_compute(0);
        });
    }

    /** A step of a program: a kernel, for which it waits as long as the GPU takes to turn, `in_mpi`
     * in progress, a message, and right behind it the next kernel. False: wrong data. */
    bool step(bool in_mpi) {
        pair_.peer.fill(++seed_);
        pair_.peer.launch();
        pair_.peer.reset_calls();
        launch_as_program();
        wait(in_mpi);
        reset_calls();
        const Status status = pair_.get(local_->data(), kBytes, remote_);
        launch_as_program();
        own_copies_ = Pair::own_copies();
        return status == Status::ok && local_->check(0, kBytes, seed_, 0).empty();
    }
    /** Steps until the last two were copied so, for a scheduler may stop a process meanwhile. */
    bool becomes(bool in_mpi, bool direct) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        for (int good = 0; good < 2;) {
            if (!step(in_mpi) || std::chrono::steady_clock::now() > end) {
                return false;
            }
            const bool by_us = own_copies_ == 1 && pair_.peer_copies() == 0;
            good = by_us == direct ? good + 1 : 0;
        }
        return true;
    }

    /** A message of this process to itself. */
    bool reads_itself() {
        Buffer source(MemoryKind::device, kBytes);
        const Registration registration(source.data(), kBytes);
        source.fill(++seed_);
        TestPort &port = *pair_.port;
        return await_get(port, port.connection(port), local_->data(), kBytes,
                         registration.named()) == Status::ok &&
               local_->check(0, kBytes, seed_, 0).empty();
    }

    int finish() { return pair_.finish_by_order(); }

private:
    void wait(bool in_mpi) {
        const uint64_t end = monotonic_nanoseconds() + 150'000;
        while (monotonic_nanoseconds() < end) {
            if (in_mpi) {
                (*pair_.port)->progress();
            }
        }
    }

    Pair pair_{0};
    RemoteMemory remote_ = {};
    std::optional<Buffer> local_;
    uint64_t seed_ = 0;
    unsigned long own_copies_ = 0;
};

FreshProcess late("comes-late", [] {
    Neighbours neighbours;
    CHECK(neighbours.start() && neighbours.compute());
    CHECK(neighbours.becomes(false, true));
    // It is no other process.
    CHECK(neighbours.reads_itself());
    CHECK(neighbours.becomes(false, true));
    return neighbours.finish();
});

FreshProcess early("comes-early", [] {
    Neighbours neighbours;
    CHECK(neighbours.start() && neighbours.compute());
    CHECK(neighbours.becomes(false, true));
    CHECK(neighbours.becomes(true, false));
    return neighbours.finish();
});

TEST(PortGpuTurn, TheProcessThatComesLateCopies) {
    SKIP_UNLESS_SIMULATED();
    run_in_both_orders(late);
}

/** The other one, which has no message to receive, does not know its turn. */
TEST(PortGpuTurn, TheProcessThatComesEarlyDoesNotCopy) {
    SKIP_UNLESS_SIMULATED();
    run_in_both_orders(early);
}

}  // namespace
}  // namespace gpushm
