// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/collectives/pair_agreement.hpp"

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <vector>

namespace gpushm::openmpi {
namespace {

/** What one rank sends to the other. */
template <typename Word>
class Channel {
public:
    void send(Word word) {
        const std::lock_guard<std::mutex> lock(mutex_);
        words_.push_back(word);
        changed_.notify_all();
    }
    std::optional<Word> take() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return words_.empty() ? std::nullopt : std::optional(pop());
    }
    Word await() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return !words_.empty(); });
        return pop();
    }

private:
    Word pop() {
        const Word word = words_.front();
        words_.pop_front();
        return word;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Word> words_;
};

struct Side {
    Channel<uint32_t> notices;  // to the other side
    Channel<unsigned char> bytes;
    bool is_late = false;  // what the other side sends arrives behind the first look
    bool cannot_send = false;
    int questions = 0;
};

/** Stands for PeerMessages. */
class FakeMessages {
public:
    FakeMessages(Side *own, Side *peer) : own_(own), peer_(peer) {}

    std::optional<unsigned char> exchange_byte(unsigned char byte) const {
        ++own_->questions;
        own_->bytes.send(byte);
        return peer_->bytes.await();
    }
    bool send_notice(uint32_t word) const {
        if (!own_->cannot_send) {
            own_->notices.send(word);
        }
        return !own_->cannot_send;
    }
    std::optional<uint32_t> take_notice() const {
        return own_->is_late ? std::nullopt : peer_->notices.take();
    }
    std::optional<uint32_t> await_notice() const { return peer_->notices.await(); }

private:
    Side *own_;
    Side *peer_;
};

using Agreement = PairAgreement<FakeMessages>;
using Ways = std::vector<bool>;  // of each operation: whether gpushm runs it

/** One operation of a rank. */
struct Operation {
    size_t bytes;
    bool prefers;
};

class PairAgreementTest : public testing::Test {
protected:
    /** A rank, up to the end of its operations. All that the peer has sent before an operation of
     * Open MPI is there at its end. */
    Ways run(int rank, const std::vector<Operation> &operations) {
        Agreement agreement(FakeMessages(&sides_[rank], &sides_[1 - rank]));
        Ways ways;
        for (const Operation &operation : operations) {
            ways.push_back(agreement.begin(operation.bytes, [&] { return operation.prefers; }));
            if (!ways.back()) {
                operation_[rank].send(true);
                operation_[1 - rank].await();
                agreement.end();
            }
        }
        has_no_answer_[rank] = agreement.has_no_answer();
        return ways;
    }

    std::array<Ways, 2> run_both(const std::vector<Operation> &first,
                                 const std::vector<Operation> &second) {
        std::future<Ways> other = std::async(std::launch::async, [&] { return run(1, second); });
        const Ways own = run(0, first);
        return {own, other.get()};
    }

    std::array<Side, 2> sides_;
    std::array<Channel<bool>, 2> operation_;
    std::array<bool, 2> has_no_answer_ = {};
};

constexpr size_t kBytes = 1 << 16;
const std::vector<Operation> kPreferring(6, {kBytes, true});
const Ways kAllOfOpenMpi(6, false);

TEST_F(PairAgreementTest, OurWayFromTheSecondOperationOn) {
    const auto ways = run_both(kPreferring, kPreferring);
    EXPECT_EQ(ways[0], (Ways{false, true, true, true, true, true}));
    EXPECT_EQ(ways[1], ways[0]);
    EXPECT_FALSE(has_no_answer_[0] || has_no_answer_[1]);
}

TEST_F(PairAgreementTest, OneRankThatDoesNotPreferItIsEnough) {
    const auto ways = run_both(kPreferring, std::vector<Operation>(6, {kBytes, false}));
    EXPECT_EQ(ways[0], kAllOfOpenMpi);
    EXPECT_EQ(ways[1], kAllOfOpenMpi);
}

TEST_F(PairAgreementTest, QuestionsAreRare) {
    const std::vector<Operation> many(1000, {kBytes, false});
    run_both(many, many);
    EXPECT_EQ(sides_[0].questions, 10);  // 1, 4, 9, 18, 35, 68, 133, 262, 519, 776
}

TEST_F(PairAgreementTest, OurWayOnlyWhereBothPreferIt) {
    std::vector<Operation> first = kPreferring;
    std::vector<Operation> second = kPreferring;
    first[2].prefers = false;
    second[4].prefers = false;
    const auto ways = run_both(first, second);
    EXPECT_EQ(ways[0], (Ways{false, true, false, true, false, true}));
    EXPECT_EQ(ways[1], ways[0]);
}

TEST_F(PairAgreementTest, FollowsWhatTheRanksPreferNow) {
    std::vector<Operation> changing(600, {kBytes, false});
    std::fill(changing.begin() + 20, changing.end(), Operation{kBytes, true});
    const auto ways = run_both(changing, changing);
    EXPECT_EQ(ways[0], ways[1]);
    EXPECT_FALSE(ways[0][34]);
    EXPECT_TRUE(ways[0][35]);
    EXPECT_TRUE(ways[0][599]);
}

TEST_F(PairAgreementTest, FindsEitherOfTwoBuffersThatAlternate) {
    for (const size_t preferred : {0, 1}) {
        std::vector<Operation> alternating(60, {kBytes, false});
        for (size_t i = preferred; i < alternating.size(); i += 2) {
            alternating[i].prefers = true;
        }
        const auto ways = run_both(alternating, alternating);
        EXPECT_EQ(ways[0], ways[1]);
        EXPECT_TRUE(ways[0][58 + preferred]);
        EXPECT_FALSE(ways[0][59 - preferred]);
    }
}

TEST_F(PairAgreementTest, EachSizeHasItsWay) {
    std::vector<Operation> mixed;
    for (int i = 0; i < 40; ++i) {
        mixed.push_back({kBytes, true});
        mixed.push_back({4 * kBytes, false});
    }
    const auto ways = run_both(mixed, mixed);
    EXPECT_EQ(ways[0], ways[1]);
    EXPECT_TRUE(ways[0][78]);
    EXPECT_FALSE(ways[0][79]);
}

TEST_F(PairAgreementTest, APeerWithoutGpushmIsNotWaitedFor) {
    for (int i = 0; i < 6; ++i) {
        operation_[1].send(true);
    }
    EXPECT_EQ(run(0, kPreferring), kAllOfOpenMpi);
    EXPECT_TRUE(has_no_answer_[0]);
}

TEST_F(PairAgreementTest, BothKnowIfAVersionIsLate) {
    sides_[1].is_late = true;
    const auto ways = run_both(kPreferring, kPreferring);
    EXPECT_EQ(ways[0], kAllOfOpenMpi);
    EXPECT_EQ(ways[1], kAllOfOpenMpi);
}

TEST_F(PairAgreementTest, BothKnowIfOneRankCannotSend) {
    sides_[0].cannot_send = true;
    const auto ways = run_both(kPreferring, kPreferring);
    EXPECT_EQ(ways[0], kAllOfOpenMpi);
    EXPECT_EQ(ways[1], kAllOfOpenMpi);
}

}  // namespace
}  // namespace gpushm::openmpi
