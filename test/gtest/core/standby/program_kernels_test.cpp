// SPDX-License-Identifier: BSD-3-Clause
// ProgramKernels on the launches and small copies of programs.
#include "core/standby/program_kernels.hpp"

#include <gtest/gtest.h>

#include <cstdint>

using namespace gpushm;

namespace {

class ProgramKernelsTest : public ::testing::Test {
protected:
    /** Steps of so many launches and then so many copies. After how many of the steps there were
     * many kernels. */
    unsigned steps(unsigned count, unsigned launches, unsigned copies, uint32_t weight = 1) {
        unsigned found = 0;
        for (unsigned i = 0; i < count; ++i) {
            launches_ += launches;
            for (unsigned copy = 0; copy < copies; ++copy) {
                kernels_.note_copy(launches_, weight);
            }
            found += kernels_.are_many() ? 1 : 0;
        }
        return found;
    }

    ProgramKernels kernels_;
    uint64_t launches_ = 0;
};

TEST_F(ProgramKernelsTest, AreFewWithoutAny) {
    EXPECT_FALSE(kernels_.are_many());
    EXPECT_EQ(steps(1000, 0, 1), 0u);
}

TEST_F(ProgramKernelsTest, AreFewWhereEachStepHasOneAndAMessage) {
    EXPECT_EQ(steps(1000, 1, 1), 0u);
    EXPECT_EQ(steps(1000, 1, 8), 0u);
}

/** Jacobi with overlap: both edges, the inner part, two rows. */
TEST_F(ProgramKernelsTest, AreManyWhereThereAreMoreThanMessages) {
    EXPECT_EQ(steps(100, 3, 2), 100 - ProgramKernels::kCopies / 2 + 1);
}

TEST_F(ProgramKernelsTest, AreFewAgainWhereTheProgramChanges) {
    steps(100, 3, 2);
    ASSERT_TRUE(kernels_.are_many());
    EXPECT_LE(steps(100, 1, 1), 2 * ProgramKernels::kCopies);
    EXPECT_FALSE(kernels_.are_many());
}

TEST_F(ProgramKernelsTest, DoNotComeAndGoNearTheLimit) {
    const auto nine_in_eight = [this] { return steps(7, 1, 1) + steps(1, 2, 1); };
    for (int i = 0; i < 100; ++i) {
        ASSERT_EQ(nine_in_eight(), 0u);
    }
    steps(104, 3, 2);
    for (int i = 0; i < 100; ++i) {
        ASSERT_EQ(nine_in_eight(), 8u);
    }
}

TEST_F(ProgramKernelsTest, OfALongComputationCountAsFew) {
    EXPECT_EQ(steps(100, 1000, 8), 0u);
}

TEST_F(ProgramKernelsTest, AreFewBesideCostlyCopies) {
    EXPECT_EQ(steps(100, 3, 1, 32), 0u);
}

}  // namespace
