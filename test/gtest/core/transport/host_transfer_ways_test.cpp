// SPDX-License-Identifier: BSD-3-Clause
// Whether HostTransferWays finds the quicker way, and what it costs to look for it.
#include "core/transport/host_transfer_ways.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>

using namespace gpushm;

namespace {

using Load = HostTransferWays::Load;
using Way = HostTransferWays::Way;

constexpr size_t kLength = 128u << 10;

/** Transfers of one length, whose time a function tells. */
class Transfers {
public:
    using Time = std::function<double(Way)>;  // ns

    explicit Transfers(Load load = Load::alone, size_t length = kLength)
        : load_(load), length_(length) {}

    /** All of them, in ns. */
    double run(unsigned count, const Time &time) {
        double sum = 0;
        for (unsigned i = 0; i < count; ++i) {
            const HostTransferWays::Choice choice = ways.choose(load_, length_);
            const double taken = time(choice.way);
            sum += taken;
            by_slots += choice.way == Way::slots ? 1 : 0;
            if (choice.is_timed) {
                ways.note(load_, length_, choice.way, length_, static_cast<uint64_t>(taken));
            }
        }
        return sum;
    }

    HostTransferWays ways;
    unsigned by_slots = 0;

private:
    Load load_;
    size_t length_;
};

Transfers::Time constant(double cma, double slots) {
    return [=](Way way) { return way == Way::cma ? cma : slots; };
}

/** Each takes up to twice as long as the quickest, and one in 50 ten times as long. */
class Noise {
public:
    double operator()(double quickest) {
        const double often = quickest * (1 + uniform());
        return uniform() < 0.02 ? 10 * often : often;
    }

private:
    double uniform() {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<double>(state_ >> 40) / (1u << 24);
    }

    uint64_t state_ = 1;
};

}  // namespace

TEST(HostTransferWays, TheKernelCopiesWhatIsLittleOrTheFirst) {
    Transfers transfers;
    transfers.run(16, constant(10'000, 1));
    EXPECT_EQ(transfers.by_slots, 0u);
    EXPECT_FALSE(HostTransferWays::covers((16u << 10) - 1));
    EXPECT_TRUE(HostTransferWays::covers(16u << 10));
    EXPECT_TRUE(HostTransferWays::covers(1u << 20));
    EXPECT_FALSE(HostTransferWays::covers((1u << 20) + 1));
}

TEST(HostTransferWays, TakesTheQuickerWay) {
    for (const Load load : {Load::alone, Load::crowd}) {
        Transfers transfers(load);
        transfers.run(100, constant(10'000, 5'000));
        EXPECT_EQ(transfers.ways.best(load, kLength), Way::slots);
        EXPECT_EQ(transfers.ways.best(load == Load::alone ? Load::crowd : Load::alone, kLength),
                  Way::cma);
        EXPECT_EQ(transfers.ways.best(load, 2 * kLength), Way::cma)
            << "of other lengths nothing is known";
        EXPECT_EQ(transfers.ways.best(load, 2 * kLength - 1), Way::slots);
    }
}

TEST(HostTransferWays, TheFirstHalfOfTheFirstTrialDoesNotCount) {
    Transfers transfers;
    unsigned touched = 0;
    transfers.run(100, [&](Way way) {
        return way == Way::cma ? 10'000.0 : touched++ < 4 ? 200'000.0 : 5'000.0;
    });
    EXPECT_EQ(transfers.ways.best(Load::alone, kLength), Way::slots);
}

TEST(HostTransferWays, ASlowerWayCostsLittle) {
    for (const Load load : {Load::alone, Load::crowd}) {
        Transfers transfers(load);
        transfers.run(2000, constant(10'000, 30'000));
        const double later = transfers.run(10'000, constant(10'000, 30'000));
        EXPECT_LT(later, 1.02 * 10'000 * 10'000);
        EXPECT_EQ(transfers.ways.best(load, kLength), Way::cma);
    }
}

TEST(HostTransferWays, NoiseCostsLittle) {
    for (const double slots : {5'000.0, 9'500.0, 10'500.0, 12'000.0, 30'000.0}) {
        Noise noise;
        const auto time = [&](Way way) { return noise(way == Way::cma ? 10'000 : slots); };
        Transfers transfers;
        transfers.run(1000, time);
        const unsigned count = 20'000;
        const double taken = transfers.run(count, time);
        const double mean = 1.5 * (0.98 + 0.02 * 10);
        EXPECT_LT(taken, 1.08 * mean * std::min(slots, 10'000.0) * count) << slots;
    }
}

TEST(HostTransferWays, FollowsAChange) {
    Transfers transfers;
    transfers.run(5000, constant(10'000, 5'000));
    EXPECT_EQ(transfers.ways.best(Load::alone, kLength), Way::slots);
    transfers.run(100, constant(10'000, 30'000));
    EXPECT_EQ(transfers.ways.best(Load::alone, kLength), Way::cma);
    transfers.run(2500,
                  constant(10'000, 5'000));  // whether slots are better again only a trial tells
    EXPECT_EQ(transfers.ways.best(Load::alone, kLength), Way::slots);
    transfers.run(100, constant(10'000, 20'000));
    transfers.run(100,
                  constant(40'000, 20'000));  // the way that is taken becomes slower: soon tried
    EXPECT_EQ(transfers.ways.best(Load::alone, kLength), Way::slots);
}

TEST(HostTransferWays, WhatIsNotNotedChangesNothing) {
    HostTransferWays ways;
    for (int i = 0; i < 1000; ++i) {
        ways.choose(Load::alone, kLength);
    }
    EXPECT_EQ(ways.best(Load::alone, kLength), Way::cma);
}
