// SPDX-License-Identifier: BSD-3-Clause
// Who may have an offered message, by its word.
#include "core/shm/offered_message.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace gpushm {
namespace {

using Phase = OfferedMessage::Phase;

class OfferedMessages : public testing::Test {
protected:
    const std::unique_ptr<OfferedMessage> memory_ = std::make_unique<OfferedMessage>();
    OfferedMessage &message_ = *memory_;
};

TEST_F(OfferedMessages, AreClaimedOrCompletedNotBoth) {
    message_.open(7);
    EXPECT_EQ(message_.phase(7), Phase::open);
    EXPECT_TRUE(message_.claim(7));
    EXPECT_FALSE(message_.complete(7));
    EXPECT_FALSE(message_.claim(7));
    EXPECT_EQ(message_.phase(7), Phase::claimed);
    message_.open(8);
    EXPECT_TRUE(message_.complete(8));
    EXPECT_FALSE(message_.claim(8));
    EXPECT_EQ(message_.phase(8), Phase::complete);
}

TEST_F(OfferedMessages, ThatAreClaimedAreReadOrTakenBack) {
    message_.open(7);
    EXPECT_FALSE(message_.confirm(7));
    EXPECT_FALSE(message_.complete_claimed(7));
    EXPECT_TRUE(message_.claim(7));
    EXPECT_TRUE(message_.confirm(7));
    EXPECT_FALSE(message_.complete_claimed(7));
    EXPECT_EQ(message_.phase(7), Phase::done);
    message_.open(8);
    EXPECT_TRUE(message_.claim(8));
    EXPECT_TRUE(message_.complete_claimed(8));
    EXPECT_FALSE(message_.confirm(8));
    EXPECT_EQ(message_.phase(8), Phase::complete);
}

TEST_F(OfferedMessages, ThatAreAskedForAreNotTakenBack) {
    message_.open(7);
    EXPECT_FALSE(message_.ask(7));  // it is not claimed
    EXPECT_TRUE(message_.claim(7));
    EXPECT_TRUE(message_.ask(7));
    EXPECT_TRUE(message_.ask(7));
    EXPECT_FALSE(message_.claim(7));
    EXPECT_FALSE(message_.complete(7));
    EXPECT_FALSE(message_.complete_claimed(7));
    message_.open(9);
    EXPECT_TRUE(message_.complete(9));
    EXPECT_FALSE(message_.ask(9));
    EXPECT_FALSE(message_.ask(10));
}

TEST_F(OfferedMessages, ThatAreWithdrawnAreNotClaimed) {
    message_.open(7);
    message_.withdraw(7);
    EXPECT_FALSE(message_.claim(7));
    EXPECT_EQ(message_.phase(7), Phase::withdrawn);
    EXPECT_TRUE(message_.ask(7));
    message_.open(8);
    EXPECT_TRUE(message_.claim(8));
    message_.withdraw(8);
    EXPECT_EQ(message_.phase(8), Phase::claimed);
}

TEST_F(OfferedMessages, OfAnotherUseAreNobodys) {
    message_.open(7);
    EXPECT_FALSE(message_.claim(6));
    EXPECT_EQ(message_.phase(6), Phase::ended);
    EXPECT_EQ(message_.phase(7), Phase::open);
    message_.end();
    EXPECT_EQ(message_.phase(7), Phase::ended);
    EXPECT_FALSE(message_.claim(7));
    EXPECT_FALSE(message_.complete(7));
}

TEST_F(OfferedMessages, WithoutSenseAreEnded) {
    for (const uint64_t word : {uint64_t{7} << 32 | 7, uint64_t{7} << 32 | 0xffffffff, uint64_t{7},
                                ~uint64_t{0}, uint64_t{1}}) {
        message_.state.store(word);
        EXPECT_EQ(message_.phase(7), Phase::ended);
        EXPECT_FALSE(message_.claim(7));
    }
}

TEST_F(OfferedMessages, HaveOneWinner) {
    std::atomic<uint32_t> round{0};
    std::atomic<uint32_t> claimed{0};
    std::atomic<uint32_t> answered{0};
    constexpr uint32_t kRounds = 20000;
    std::thread receiver([&] {
        for (uint32_t id = 1; id <= kRounds; ++id) {
            while (round.load() < id) {
            }
            claimed += message_.claim(id) ? 1 : 0;
            answered = id;
        }
    });
    uint32_t completed = 0;
    for (uint32_t id = 1; id <= kRounds; ++id) {
        message_.open(id);
        round = id;
        completed += message_.complete(id) ? 1 : 0;
        while (answered.load() < id) {
        }
    }
    receiver.join();
    EXPECT_EQ(claimed + completed, kRounds);
}

TEST(OfferUses, NameAPlaceThatThereIs) {
    EXPECT_FALSE(OfferUse().exists());
    EXPECT_TRUE((OfferUse{kOfferedMessages - 1, 1}).exists());
    EXPECT_FALSE((OfferUse{kOfferedMessages, 1}).exists());
    EXPECT_FALSE((OfferUse{0, 0}).exists());
}

}  // namespace
}  // namespace gpushm
