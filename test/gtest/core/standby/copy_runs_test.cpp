// SPDX-License-Identifier: BSD-3-Clause
// CopyRuns on the copies and waits of programs.
#include "core/standby/copy_runs.hpp"

#include <gtest/gtest.h>

#include <cstdint>

using namespace gpushm;

namespace {

class CopyRunsTest : public ::testing::Test {
protected:
    /** Steps of so many copies, each behind a wait. How many of the copies found long runs. */
    unsigned steps(unsigned count, unsigned copies, uint32_t weight = 1) {
        unsigned found = 0;
        for (unsigned i = 0; i < count; ++i) {
            ++ends_;
            for (unsigned copy = 0; copy < copies; ++copy) {
                runs_.note_copy(ends_, weight);
                found += runs_.are_long() ? 1 : 0;
            }
        }
        return found;
    }
    /** Without any wait. */
    void copies(unsigned count) {
        for (unsigned i = 0; i < count; ++i) {
            runs_.note_copy(ends_, 1);
        }
    }

    CopyRuns runs_;
    uint64_t ends_ = 0;
};

TEST_F(CopyRunsTest, AreTakenForLongBeforeAnyHasEnded) {
    EXPECT_TRUE(runs_.are_long());
    copies(1);
    EXPECT_TRUE(runs_.are_long());
    steps(1, 1);  // what has ended began before the first copy
    EXPECT_TRUE(runs_.are_long());
}

TEST_F(CopyRunsTest, AreShortFromTheSecondStepOnThatWaits) {
    steps(2, 2);
    EXPECT_EQ(steps(100, 2), 0u);
    EXPECT_EQ(steps(100, CopyRuns::kLong - 1), 0u);
}

TEST_F(CopyRunsTest, AreLongInStepsOfManyCopies) {
    EXPECT_EQ(steps(100, CopyRuns::kLong), 100 * CopyRuns::kLong);
}

TEST_F(CopyRunsTest, BecomeLongWhereTheProgramCeasesToWait) {
    steps(100, 2);
    ASSERT_FALSE(runs_.are_long());
    copies(CopyRuns::kLong - 3);
    EXPECT_FALSE(runs_.are_long());
    copies(1);
    EXPECT_TRUE(runs_.are_long());
    copies(1'000'000);
    EXPECT_TRUE(runs_.are_long());
}

TEST_F(CopyRunsTest, AreLongForOneStepMoreWhereTheProgramBeginsToWait) {
    copies(1000);
    EXPECT_EQ(steps(100, 2), 2u);
}

TEST_F(CopyRunsTest, OfCostlyCopiesAreLongAtOnce) {
    steps(100, 2);
    EXPECT_EQ(steps(100, 1, CopyRuns::kLong), 100u);
}

}  // namespace
