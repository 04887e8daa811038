// SPDX-License-Identifier: BSD-3-Clause
// Many small puts and gets of GPU memory are few messages, and the GPU copies their blocks together
// (BlockTransfers).
#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/core/transport/port_support.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kPitch = 12;
constexpr size_t kBlock = 4;
constexpr size_t kBlocks = 20000;
constexpr size_t kBytes = kBlocks * kPitch;
constexpr char kOwner = 0;

class PortGpuBlocks : public GpuTest {
protected:
    PortGpuBlocks() : host_(kBytes), expected_(kBytes) {
        window_.fill(1);
        fill_pattern(expected_.data(), kBytes, 1);
        fill_pattern(host_.data(), kBytes, 2);
    }
    ~PortGpuBlocks() override {
        a_.destroy();
        b_.destroy();
    }

    /** Until it may be started. */
    template <typename Start>
    void start(Start start_it) {
        ASSERT_EQ(send_when_possible(a_, b_, start_it), Status::in_progress);
    }
    void put(size_t at, size_t length, const void *owner = &kOwner) {
        outcomes_.emplace_back();
        start([&] {
            return connection_.put(host_.data() + at, length, memory_.of_program(at), owner,
                                   outcomes_.back().completion());
        });
    }
    void get(size_t at, size_t length, void *local, const void *owner = &kOwner) {
        outcomes_.emplace_back();
        start([&] {
            return connection_.get(local, length, memory_.of_program(at), owner,
                                   outcomes_.back().completion());
        });
    }
    void put_all() {
        for (size_t at = 0; at < kBytes; at += kPitch) {
            put(at, kBlock);
            std::copy_n(host_.begin() + static_cast<ptrdiff_t>(at), kBlock,
                        expected_.begin() + static_cast<ptrdiff_t>(at));
        }
    }
    void get_all(std::vector<unsigned char> *local) {
        for (size_t at = 0; at < kBytes; at += kPitch) {
            get(at, kBlock, local->data() + at);
        }
    }
    bool all_done() const {
        return std::all_of(outcomes_.begin(), outcomes_.end(),
                           [](const Outcome &outcome) { return outcome.done(); });
    }
    void expect_all(Status status) {
        ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return all_done(); }));
        settle({&a_, &b_});
        for (const Outcome &outcome : outcomes_) {
            ASSERT_EQ(outcome.calls, 1u);
            ASSERT_EQ(outcome.status, status);
        }
    }

    TestPort a_;
    TestPort b_;
    Connection &connection_ = a_.connection(b_);
    Buffer window_{MemoryKind::device, kBytes};
    Registration memory_{window_.data(), kBytes};
    std::vector<unsigned char> host_;
    std::vector<unsigned char> expected_;
    std::deque<Outcome> outcomes_;
};

TEST_F(PortGpuBlocks, PutsWriteTheirBlocksOnly) {
    put_all();
    expect_all(Status::ok);
    EXPECT_EQ(read(window_, kBytes), expected_);
}

TEST_F(PortGpuBlocks, GetsReadTheirBlocksOnly) {
    std::vector<unsigned char> local(kBytes, 7);
    get_all(&local);
    expect_all(Status::ok);
    for (size_t at = 0; at < kBytes; ++at) {
        ASSERT_EQ(local[at], at % kPitch < kBlock ? expected_[at] : 7) << at;
    }
}

/** 20 messages of 1024 blocks, and a few by themselves. */
TEST_F(PortGpuBlocks, BlocksAreCopiedTogether) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    std::vector<unsigned char> local(kBytes);
    put_all();  // everything is warm then
    get_all(&local);
    expect_all(Status::ok);
    for (const bool is_put : {true, false}) {
        reset_calls();
        is_put ? put_all() : get_all(&local);
        expect_all(Status::ok);
        unsigned long copies = 0;
        for (const char *function : {"cuMemcpyAsync", "cuMemcpy2DAsync", "cuMemcpyBatchAsync",
                                     "cuLaunchKernel", "cuMemcpy"}) {
            copies += calls(function);
        }
        EXPECT_GE(copies, kBlocks / kMaxBlocks);
        EXPECT_LE(copies, 3 * kBlocks / kMaxBlocks) << (is_put ? "puts" : "gets");
    }
}

/** Ranges that overlap, blocks and longer ones: as if each ended before the next one began. */
TEST_F(PortGpuBlocks, OverlappingOnesTakeEffectInTheirOrder) {
    constexpr size_t kArea = 5000;
    struct Read {
        size_t at;
        std::vector<unsigned char> local;
        std::vector<unsigned char> expected;
    };
    Random random(3);
    std::deque<Read> reads;
    for (size_t i = 0; i < (kSanitized ? 2000 : 20000); ++i) {
        const size_t longest = random.below(50) == 0 ? 3000 : 24;
        const size_t length = 1 + random.below(longest);
        const size_t at = random.below(kArea - length);
        const auto begin = expected_.begin() + static_cast<ptrdiff_t>(at);
        if (random.below(100) < 70) {
            fill_pattern(host_.data() + at, length, i);
            std::vector<unsigned char> source(host_.begin() + static_cast<ptrdiff_t>(at),
                                              host_.begin() + static_cast<ptrdiff_t>(at + length));
            outcomes_.emplace_back();
            reads.push_back({at, std::move(source), {}});
            start([&] {
                return connection_.put(reads.back().local.data(), length, memory_.of_program(at),
                                       &kOwner, outcomes_.back().completion());
            });
            std::copy(reads.back().local.begin(), reads.back().local.end(), begin);
            reads.back().expected = reads.back().local;
        } else {
            reads.push_back(
                {at, std::vector<unsigned char>(length),
                 std::vector<unsigned char>(begin, begin + static_cast<ptrdiff_t>(length))});
            get(at, length, reads.back().local.data());
        }
        if (random.below(300) == 0) {
            settle({&a_, &b_});
        }
    }
    expect_all(Status::ok);
    EXPECT_EQ(read(window_, kBytes), expected_);
    for (const Read &one : reads) {
        ASSERT_EQ(one.local, one.expected) << "at " << one.at;
    }
}

TEST_F(PortGpuBlocks, FlushEndsAfterAllThatWasCollected) {
    for (size_t at = 0; at < 100 * kPitch; at += kPitch) {
        put(at, kBlock);
    }
    Outcome flush;
    ASSERT_EQ(connection_.flush(&kOwner, flush.completion()), Status::in_progress);
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return flush.done(); }));
    EXPECT_TRUE(all_done());
    for (size_t at = 0; at < 100 * kPitch; at += kPitch) {
        std::copy_n(host_.begin() + static_cast<ptrdiff_t>(at), kBlock,
                    expected_.begin() + static_cast<ptrdiff_t>(at));
    }
    EXPECT_EQ(read(window_, kBytes), expected_);
}

TEST_F(PortGpuBlocks, NothingPassesAFence) {
    for (size_t at = 0; at < 100 * kPitch; at += kPitch) {
        put(at, kBlock);
    }
    connection_.fence();
    unsigned char late = 0;
    Outcome outcome;
    EXPECT_EQ(
        connection_.put(&late, 1, memory_.of_program(kBytes - 1), &kOwner, outcome.completion()),
        Status::no_resource);
    expect_all(Status::ok);
    EXPECT_EQ(
        connection_.put(&late, 1, memory_.of_program(kBytes - 1), &kOwner, outcome.completion()),
        Status::in_progress);
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
}

TEST_F(PortGpuBlocks, MemoryThatIsDeregisteredIsNotTouched) {
    std::vector<unsigned char> local(kBytes, 7);
    const LogCapture log;
    const RemoteMemory before = memory_.of_program();
    memory_.end();
    for (const bool is_put : {true, false}) {
        for (size_t at = 0; at < 200 * kPitch; at += kPitch) {
            RemoteMemory remote = before;
            remote.address += at;
            outcomes_.emplace_back();
            start([&] {
                return is_put ? connection_.put(host_.data() + at, kBlock, remote, &kOwner,
                                                outcomes_.back().completion())
                              : connection_.get(local.data() + at, kBlock, remote, &kOwner,
                                                outcomes_.back().completion());
            });
        }
        expect_all(Status::gpu_error);
    }
    EXPECT_FALSE(connection_.failed());
    EXPECT_EQ(read(window_, kBytes), expected_);
    EXPECT_EQ(local, std::vector<unsigned char>(kBytes, 7));
}

TEST_F(PortGpuBlocks, BlockBehindTheRegistrationIsRefused) {
    const LogCapture log;
    const Registration half(window_.data(), kBytes / 2);
    for (size_t i = 0; i < 200; ++i) {
        outcomes_.emplace_back();
        start([&] {
            return connection_.put(host_.data(), kBlock, half.of_program(kBytes / 2 - 1 + i * 8),
                                   &kOwner, outcomes_.back().completion());
        });
    }
    expect_all(Status::gpu_error);
    EXPECT_EQ(read(window_, kBytes), expected_);
}

/** Those of one owner, whether they are collected, on their way or answered. */
TEST_F(PortGpuBlocks, CancelledGetsWriteNothingAndOthersGoOn) {
    constexpr char kCancelled = 0;
    std::vector<unsigned char> cancelled(kBytes, 7);
    std::vector<unsigned char> local(kBytes, 7);
    std::deque<Outcome> given_up;
    for (size_t at = 0; at < 1500 * kPitch; at += kPitch) {
        given_up.emplace_back();
        start([&] {
            return connection_.get(cancelled.data() + at, kBlock, memory_.of_program(at),
                                   &kCancelled, given_up.back().completion());
        });
        get(at, kBlock, local.data() + at);
    }
    const std::vector<unsigned char> before = cancelled;
    const auto ended = [&] {
        return std::count_if(given_up.begin(), given_up.end(),
                             [](const Outcome &outcome) { return outcome.done(); });
    };
    const auto ended_before = ended();
    std::vector<Completion> handed_out;
    connection_.cancel(&kCancelled, &handed_out);
    EXPECT_EQ(handed_out.size() + static_cast<size_t>(ended_before), given_up.size());
    expect_all(Status::ok);
    EXPECT_EQ(ended(), ended_before) << "nobody is told of what was cancelled";
    EXPECT_EQ(cancelled, before);
    for (size_t at = 0; at < 1500 * kPitch; ++at) {
        ASSERT_EQ(local[at], at % kPitch < kBlock ? expected_[at] : 7) << at;
    }
}

/** A completion may end the endpoint. */
TEST_F(PortGpuBlocks, CompletionMayCancelTheRest) {
    struct Canceller {
        Connection &connection;
        unsigned calls = 0;
        static void cancel(void *self, Status) {
            auto *canceller = static_cast<Canceller *>(self);
            ++canceller->calls;
            canceller->connection.cancel(&kOwner);
        }
    } canceller{connection_};
    for (size_t at = 0; at < 500 * kPitch; at += kPitch) {
        start([&] {
            return connection_.put(host_.data() + at, kBlock, memory_.of_program(at), &kOwner,
                                   {Canceller::cancel, &canceller});
        });
    }
    settle({&a_, &b_});
    EXPECT_GE(canceller.calls, 1u);
    EXPECT_LT(canceller.calls, 500u);
    EXPECT_TRUE(a_->idle());
}

TEST_F(PortGpuBlocks, PeerThatEndsEndsEveryBlock) {
    std::vector<unsigned char> local(kBytes, 7);
    for (size_t at = 0; at < 3000 * kPitch; at += kPitch) {
        at / kPitch % 2 == 0 ? put(at, kBlock) : get(at, kBlock, local.data() + at);
    }
    b_.destroy();
    ASSERT_TRUE(progress_until({&a_}, [&] { return all_done(); }));
    EXPECT_EQ(a_.failed_connections.size(), 1u);
    for (const Outcome &outcome : outcomes_) {
        ASSERT_EQ(outcome.calls, 1u);
    }
    EXPECT_EQ(outcomes_.back().status, Status::peer_failed);
}

}  // namespace
}  // namespace gpushm
