// SPDX-License-Identifier: BSD-3-Clause
// LaunchUse on launches with and without copies.
#include "core/standby/launch_use.hpp"

#include <gtest/gtest.h>

using namespace gpushm;

namespace {

class LaunchUseTest : public ::testing::Test {
protected:
    /** So many costly copies. Each that is likely brings a launch, which makes it or does not. How
     * many launches there were. */
    unsigned copies(unsigned count, bool in_time) {
        unsigned launches = 0;
        for (unsigned i = 0; i < count; ++i) {
            if (use_.is_likely()) {
                ++launches;
                use_.note_left(in_time);
            }
        }
        return launches;
    }

    LaunchUse use_;
};

TEST_F(LaunchUseTest, IsLikelyWhereCopiesAreMade) {
    EXPECT_EQ(copies(10'000, true), 10'000u);
}

TEST_F(LaunchUseTest, IsTriedRarelyWhereNoCopyIsMade) {
    EXPECT_EQ(copies(LaunchUse::kUnused + LaunchUse::kPause, false), LaunchUse::kUnused);
    EXPECT_EQ(copies(10 * (LaunchUse::kPause + 2), false), 20u);
}

TEST_F(LaunchUseTest, IsLikelyAgainWhereATryMakesACopy) {
    copies(LaunchUse::kUnused, false);
    ASSERT_EQ(copies(LaunchUse::kPause, true), 0u);
    EXPECT_EQ(copies(1000, true), 1000u);
}

/** Programs that send and receive in turn: the kernel is there for every second copy only. */
TEST_F(LaunchUseTest, IsLikelyWhereEverySecondLaunchMakesACopy) {
    for (unsigned i = 0; i < 1000; ++i) {
        ASSERT_EQ(copies(1, i % 2 == 0), 1u);
    }
}

}  // namespace
