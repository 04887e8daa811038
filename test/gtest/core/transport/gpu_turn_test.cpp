// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/gpu_turn.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace gpushm {
namespace {

// Nanoseconds.
constexpr uint64_t kKernel = 20'000;
constexpr uint64_t kTurn = 150'000;
constexpr uint64_t kLaunching = 20'000;

void pass(uint64_t nanoseconds) {
    const uint64_t end = monotonic_nanoseconds() + nanoseconds;
    while (monotonic_nanoseconds() < end) {
    }
}

/** A scheduler may stop the test for longer than anything here takes, so that what it does at all
 * counts, not each time. */
template <typename Action>
bool happens(Action action) {
    for (int i = 0; i < 200; ++i) {
        if (action()) {
            return true;
        }
    }
    return false;
}

/** What a program of two processes does with the port. */
struct Program {
    Program() {
        turn.count_peer(1);
        turn.set_contended(true);
    }

    /** Launches a kernel, and waits so long for it before it comes to MPI. */
    void compute(uint64_t wait) {
        DriverWatch::instance().note_launch();
        pass(wait);
        turn.enter();
    }
    /** A message arrives; `before_return`: what the program does before it launches again. */
    template <typename BeforeReturn>
    void exchange(BeforeReturn before_return) {
        turn.note_arrival();
        turn.enter();
        before_return();
        pass(kLaunching);
    }
    void exchange() {
        exchange([] {});
    }
    bool counts_after_exchanges() {
        compute(kTurn);
        exchange();
        compute(kTurn);
        return turn.counts();
    }
    /** How long it waits for the peer, long after it has come. */
    uint64_t wait_for_peer() {
        pass(kTurn);
        turn.note_arrival();
        const uint64_t begin = monotonic_nanoseconds();
        turn.let_peer_launch();
        return monotonic_nanoseconds() - begin;
    }

    GpuTurn turn;
};

TEST(GpuTurn, IsOfTheProcessThatHasWaitedForItAndHasJustCome) {
    Program program;
    EXPECT_TRUE(happens([&] {
        program.compute(kTurn);
        return program.turn.is_own();
    }));
    EXPECT_TRUE(happens([&] {
        program.compute(kTurn);
        for (int i = 0; i < 4; ++i) {
            pass(kTurn / 4);
            program.turn.keep();
        }
        return program.turn.is_own();
    })) << "it goes on copying";
    pass(kTurn);
    EXPECT_FALSE(program.turn.is_own()) << "it came long ago";
    EXPECT_TRUE(happens([&] {
        program.compute(0);
        return !program.turn.is_own();
    })) << "it did not wait";
    EXPECT_TRUE(happens([&] {
        program.compute(kKernel);
        return !program.turn.is_own();
    })) << "its kernel ran at once";
    program.turn.count_peer(1);
    program.compute(kTurn);
    EXPECT_FALSE(program.turn.is_own()) << "there are three";
}

TEST(GpuTurn, CountsWhereTheProgramLaunchesBehindItsExchange) {
    Program program;
    program.compute(kTurn);
    EXPECT_FALSE(program.turn.counts()) << "nothing is known";
    EXPECT_TRUE(happens([&] { return program.counts_after_exchanges(); }));
    program.turn.set_contended(false);
    EXPECT_FALSE(program.turn.counts());
}

TEST(GpuTurn, DoesNotCountWhereTheProgramGoesOnInMpi) {
    Program program;
    ASSERT_TRUE(happens([&] { return program.counts_after_exchanges(); }));
    // A wait for a stream, and a collective operation.
    EXPECT_TRUE(happens([&] {
        program.exchange([&] {
            pass(5000);
            program.turn.enter();
        });
        program.compute(kTurn);
        return !program.turn.counts();
    }));
    EXPECT_TRUE(happens([&] { return program.counts_after_exchanges(); }));
}

TEST(GpuTurn, DoesNotCountWhereTheProgramComputesOnTheCpu) {
    Program program;
    EXPECT_FALSE(happens([&] {
        program.compute(kTurn);
        program.exchange([] { pass(100'000); });
        program.compute(kTurn);
        return program.turn.counts();
    }));
}

TEST(GpuTurn, DoesNotCountWhereAnotherThreadLaunches) {
    Program program;
    EXPECT_FALSE(happens([&] {
        program.compute(kTurn);
        program.turn.note_arrival();
        DriverWatch::instance().note_launch();
        program.turn.leave();
        pass(kTurn);
        program.turn.enter();
        return program.turn.counts();
    }));
}

TEST(GpuTurn, CountsForThreeProcessesWhateverTheirProgramsDo) {
    Program program;
    program.turn.count_peer(1);
    EXPECT_TRUE(program.turn.counts());
    program.turn.count_peer(-1);
    EXPECT_FALSE(program.turn.counts());
}

TEST(GpuTurn, LetsThePeerLaunchForAsLongAsThisProcessTakes) {
    Program program;
    EXPECT_TRUE(happens([&] { return program.wait_for_peer() < kLaunching; }))
        << "nothing is known";
    EXPECT_TRUE(happens(
        [&] { return program.counts_after_exchanges() && program.wait_for_peer() >= kLaunching; }));
    // It learns nothing from its own wait.
    uint64_t shortest = UINT64_MAX;
    for (int i = 0; i < 50; ++i) {
        program.turn.enter();
        pass(kLaunching);
        program.compute(kKernel);
        shortest = std::min(shortest, program.wait_for_peer());
    }
    EXPECT_LT(shortest, 2 * kLaunching);
}

TEST(GpuTurn, WaitsOnlyBehindTheLastMessageOfAnExchange) {
    Program program;
    EXPECT_TRUE(happens([&] {
        program.compute(kKernel);
        const uint64_t first = program.wait_for_peer();
        const uint64_t second = program.wait_for_peer();
        program.turn.enter();
        pass(kLaunching);
        return first < kLaunching && second >= kLaunching;
    }));
    EXPECT_FALSE(happens([&] {
        program.compute(kKernel);
        uint64_t shortest = UINT64_MAX;
        for (int i = 0; i < 3; ++i) {
            shortest = std::min(shortest, program.wait_for_peer());
        }
        program.turn.enter();
        pass(kLaunching);
        return shortest >= kLaunching;
    })) << "it has waited behind each of three";
}

TEST(GpuTurn, DoesNotWaitForThePeerInItsOwnTurn) {
    Program program;
    ASSERT_TRUE(happens([&] { return program.counts_after_exchanges(); }));
    EXPECT_TRUE(happens([&] {
        program.exchange();
        program.compute(kTurn);
        const uint64_t begin = monotonic_nanoseconds();
        const bool is_own = program.turn.is_own();
        program.turn.let_peer_launch();
        return is_own && monotonic_nanoseconds() - begin < kLaunching;
    }));
}

}  // namespace
}  // namespace gpushm
