// SPDX-License-Identifier: BSD-3-Clause
#include "core/mapping/mapping_prior.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace gpushm {
namespace {

constexpr double kMapping = 0.5e-3;  // what one costs
constexpr double kMessage = 10e-6;   // what a message through it saves

/** A program that sends each of `buffers` buffers `messages` times. How many it has mapped on
 * trust. */
unsigned run(MappingPrior &prior, unsigned buffers, uint64_t messages) {
    unsigned mapped = 0;
    for (unsigned i = 0; i < buffers; ++i) {
        bool is_mapped = false;
        for (uint64_t message = 1; message <= messages; ++message) {
            if (message == 2) {
                prior.note_return();
            }
            if (is_mapped) {
                prior.note_saving(kMessage);
            } else if (prior.trusts(message)) {
                prior.note_trust(message);
                prior.note_cost(kMapping);
                is_mapped = true;
                ++mapped;
            }
        }
    }
    return mapped;
}

TEST(MappingPriorTest, BuffersThatComeAgainAreAllMapped) {
    MappingPrior prior;
    EXPECT_EQ(run(prior, 1000, 100), 1000u);
    EXPECT_TRUE(prior.trusts(1));
}

TEST(MappingPriorTest, ManyAtATimeAreMappedAtTheirSecondMessageAtTheLatest) {
    MappingPrior prior;
    unsigned at_first = 0;
    for (int i = 0; i < 12; ++i) {
        if (prior.trusts(1)) {
            prior.note_trust(1);
            prior.note_cost(kMapping);
            ++at_first;
        }
    }
    EXPECT_EQ(at_first, 8u);
    EXPECT_TRUE(prior.trusts(2));
}

TEST(MappingPriorTest, BuffersThatComeOnceAreNot) {
    MappingPrior prior;
    EXPECT_EQ(run(prior, 1000, 1), 8u);
    EXPECT_EQ(run(prior, 1000, 1), 0u);
}

TEST(MappingPriorTest, BuffersThatComeAFewTimesCostABoundedTime) {
    for (uint64_t messages = 2; messages < 50; ++messages) {
        MappingPrior prior;
        const unsigned mapped = run(prior, 10000, messages);
        const double lost = mapped * (kMapping - static_cast<double>(messages - 1) * kMessage);
        EXPECT_LE(lost, 9e-3) << messages;
        EXPECT_EQ(run(prior, 1, 1), 0u) << messages;
    }
}

TEST(MappingPriorTest, TrustComesBack) {
    MappingPrior prior;
    run(prior, 100, 1);
    run(prior, 100, 3);
    EXPECT_FALSE(prior.trusts(1) || prior.trusts(2));
    for (int i = 0; i < 1000; ++i) {  // by a buffer that has paid for its mapping beforehand
        prior.note_saving(kMessage);
    }
    EXPECT_TRUE(prior.trusts(2));
    EXPECT_EQ(run(prior, 10, 100), 10u);
    EXPECT_TRUE(prior.trusts(1));
}

/** The first mapping in a context takes as long as many others. */
TEST(MappingPriorTest, ASlowOneDoesNotEndAllTrust) {
    MappingPrior prior;
    for (int context = 0; context < 4; ++context) {
        prior.note_cost(10e-3);
        EXPECT_TRUE(prior.trusts(1) && prior.trusts(2)) << context;
    }
    for (int i = 0; i < 10; ++i) {
        prior.note_cost(10e-3);
    }
    EXPECT_FALSE(prior.trusts(1) || prior.trusts(2));
}

/** What was saved long ago pays for nothing. */
TEST(MappingPriorTest, SavingsAreNoCredit) {
    MappingPrior prior;
    prior.note_saving(100);
    const unsigned mapped = run(prior, 1000, 2);
    EXPECT_LE(mapped, 20u);
}

}  // namespace
}  // namespace gpushm
