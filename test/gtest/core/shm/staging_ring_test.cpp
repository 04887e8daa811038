// SPDX-License-Identifier: BSD-3-Clause
// StagingRing: spans that never overlap, memory that comes back, partners that lie.
#include "core/shm/staging_ring.hpp"

#include "test/gtest/core/support.hpp"
#include "test/gtest/core/wrapped_calls.hpp"

#include <gtest/gtest.h>

#include <sched.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kRingBytes = 16384;

StagingRingReceiver attach_ring(const StagingRingSender &ring) {
    const char *why = "";
    auto receiver = StagingRingReceiver::attach(getpid(), ring.segment_fd(), ring.cookie(), &why);
    EXPECT_TRUE(receiver) << why;
    return std::move(*receiver);
}

/** A ring with both sides, and its header as any process of the same user may write it. */
class StagingRing : public testing::Test {
protected:
    StagingRing()
        : sender_(std::move(*StagingRingSender::create(kRingBytes))),
          receiver_(attach_ring(sender_)),
          raw_(map(sender_)) {}

    static Segment map(const StagingRingSender &ring) {
        const char *why = nullptr;
        return std::move(*Segment::attach(getpid(), ring.segment_fd(), 0, &why));
    }
    RingHeader &header() { return *reinterpret_cast<RingHeader *>(raw_.data()); }

    /** Sends `length` bytes through the ring and gives them back. */
    void expect_passes(size_t length, uint64_t seed) {
        const auto span = sender_.allocate(length);
        ASSERT_TRUE(span) << length;
        fill_pattern(sender_.data(*span), length, seed);
        const unsigned char *data = receiver_.open(*span);
        ASSERT_NE(data, nullptr);
        EXPECT_EQ(pattern_mismatch(data, length, seed), length);
        receiver_.close(*span);
    }

    StagingRingSender sender_;
    StagingRingReceiver receiver_;
    Segment raw_;
};

TEST_F(StagingRing, EveryLengthPassesExactlyOverManyLaps) {
    for (size_t length = 1; length <= kRingBytes / 2; length += 1 + length / 7) {
        for (uint64_t lap = 0; lap < 5; ++lap) {
            expect_passes(length, length + lap);
        }
    }
}

TEST_F(StagingRing, GivesNothingThatCannotBe) {
    EXPECT_FALSE(sender_.allocate(0));
    EXPECT_FALSE(sender_.allocate(kRingBytes / 2 + 1));
    EXPECT_FALSE(sender_.allocate(SIZE_MAX));
    EXPECT_FALSE(sender_.broken());
    expect_passes(kRingBytes / 2, 1);
}

/** As often as one likes, without the receiver; and what comes next is no gap to him. */
TEST_F(StagingRing, TheNewestSpanMayBeGivenBack) {
    const auto first = sender_.allocate(1000);
    ASSERT_TRUE(first);
    for (int i = 0; i < 100; ++i) {
        const auto span = sender_.allocate(kRingBytes / 2);
        ASSERT_TRUE(span) << i;
        EXPECT_TRUE(sender_.is_newest(*span));
        EXPECT_FALSE(sender_.is_newest(*first));
        sender_.give_back(*span);
    }
    ASSERT_NE(receiver_.open(*first), nullptr);
    receiver_.close(*first);
    expect_passes(kRingBytes / 2, 1);
    expect_passes(1000, 2);
    EXPECT_FALSE(sender_.broken());
}

TEST_F(StagingRing, IsFullUntilTheOldestSpanIsClosed) {
    std::vector<RingSpan> spans;
    while (const auto span = sender_.allocate(1000)) {
        spans.push_back(*span);
        ASSERT_NE(receiver_.open(*span), nullptr);
    }
    ASSERT_EQ(spans.size(), 16u);
    for (size_t i = 1; i < spans.size(); ++i) {
        receiver_.close(spans[i]);
        EXPECT_FALSE(sender_.allocate(1000)) << "the oldest is open, its memory comes first";
    }
    receiver_.close(spans[0]);
    EXPECT_TRUE(sender_.allocate(kRingBytes / 2));
}

TEST_F(StagingRing, ClosingInReverseGivesBackAll) {
    for (int lap = 0; lap < 10; ++lap) {
        std::vector<RingSpan> spans;
        for (int i = 0; i < 4; ++i) {
            const auto span = sender_.allocate(3000);
            ASSERT_TRUE(span);
            ASSERT_NE(receiver_.open(*span), nullptr);
            spans.push_back(*span);
        }
        for (; !spans.empty(); spans.pop_back()) {
            receiver_.close(spans.back());
        }
    }
}

TEST_F(StagingRing, ClosingTwiceOrWhatIsNotOpenDoesNothing) {
    const auto first = sender_.allocate(1000);
    const auto second = sender_.allocate(1000);
    ASSERT_NE(receiver_.open(*first), nullptr);
    ASSERT_NE(receiver_.open(*second), nullptr);
    receiver_.close(*second);
    receiver_.close(*second);
    receiver_.close({12345, 10});
    EXPECT_EQ(header().released.load(), 0u);
    receiver_.close(*first);
    EXPECT_EQ(header().released.load(), second->position + second->length);
    receiver_.close(*first);
    EXPECT_EQ(header().released.load(), second->position + second->length);
}

// A model knows which bytes of the ring are in use; real data shows what the model may miss.
class StagingRingModel : public testing::TestWithParam<size_t> {};

TEST_P(StagingRingModel, RandomUseNeverOverlapsAndNeverGetsStuck) {
    const size_t bytes = GetParam();
    auto sender = std::move(*StagingRingSender::create(bytes));
    ASSERT_EQ(sender.data_bytes(), bytes);
    StagingRingReceiver receiver = attach_ring(sender);
    struct Used {
        RingSpan span;
        uint64_t seed;
        unsigned char *data;  // where the receiver has it; null before
        bool closed;
    };
    std::deque<Used> used;  // in order; the front is the oldest that is not given back
    size_t opened = 0;      // how many of them the receiver has seen
    uint64_t position = 0;
    Random random(bytes);
    for (uint64_t step = 1; step < 60000; ++step) {
        const size_t action = random.below(3);
        if (action == 0) {
            const size_t length = random.below(random.below(4) == 0 ? bytes / 2 : 1500) + 1;
            const auto span = sender.allocate(length);
            ASSERT_TRUE(span || !used.empty()) << "an unused ring refuses " << length << " bytes";
            if (!span) {
                continue;
            }
            ASSERT_EQ(span->length, length);
            ASSERT_GE(span->position, position) << "positions go up";
            position = span->position + length;
            const size_t begin = span->position % bytes;
            ASSERT_LE(begin + length, bytes) << "it crosses the end";
            for (const Used &other : used) {
                const size_t other_begin = other.span.position % bytes;
                ASSERT_TRUE(begin + length <= other_begin ||
                            other_begin + other.span.length <= begin)
                    << "overlaps a span in use";
            }
            fill_pattern(sender.data(*span), length, step);
            used.push_back({*span, step, nullptr, false});
        } else if (action == 1 && opened < used.size()) {
            Used &next = used[opened++];
            next.data = receiver.open(next.span);
            ASSERT_NE(next.data, nullptr);
        } else if (action == 2 && opened > 0) {
            Used &any = used[random.below(opened)];
            if (!any.closed) {
                ASSERT_EQ(pattern_mismatch(any.data, any.span.length, any.seed), any.span.length);
                receiver.close(any.span);
                any.closed = true;
            }
            for (; !used.empty() && used.front().closed; --opened) {
                used.pop_front();
            }
        }
        ASSERT_FALSE(sender.broken());
    }
    EXPECT_GT(position, 20 * bytes) << "the test must wrap often";
}

INSTANTIATE_TEST_SUITE_P(Sizes, StagingRingModel, testing::Values(4096, 8192, 12288, 65536));

TEST_F(StagingRing, ImpossibleReleasesBreakTheSendersSideOnly) {
    const struct {
        uint64_t released;
        const char *what;
    } cases[] = {{kRingBytes + 1, "more than was handed out"},
                 {UINT64_MAX, "the largest number"},
                 {1, "less than before"}};
    for (const auto &[released, what] : cases) {
        auto sender = std::move(*StagingRingSender::create(kRingBytes));
        StagingRingReceiver receiver = attach_ring(sender);
        Segment raw = map(sender);
        auto &word = reinterpret_cast<RingHeader *>(raw.data())->released;
        const auto first = sender.allocate(kRingBytes / 2);
        ASSERT_TRUE(first && sender.allocate(kRingBytes / 2));
        word.store(kRingBytes / 2);
        ASSERT_TRUE(sender.allocate(kRingBytes / 2 - 512));
        ASSERT_TRUE(sender.allocate(256));
        word.store(released == kRingBytes + 1 ? 2 * kRingBytes : released);
        EXPECT_FALSE(sender.allocate(kRingBytes / 4)) << what;
        EXPECT_TRUE(sender.broken()) << what;
        word.store(kRingBytes);
        EXPECT_FALSE(sender.allocate(1)) << "a broken ring stays broken";
    }
}

TEST_F(StagingRing, HostileSpansAreRefused) {
    const auto first = sender_.allocate(1000);
    ASSERT_NE(receiver_.open(*first), nullptr);
    const RingSpan impossible[] = {
        {1024, 0},                      // empty
        {1024, kRingBytes + 1},         // longer than the ring
        {1024, UINT64_MAX},             // its end wraps in 64 bits
        {1024, UINT64_MAX - 1023},      //
        {kRingBytes - 256, 512},        // crosses the end
        {0, 1000},                      // again
        {999, 1},                       // inside of the one before
        {UINT64_MAX - 255, 256},        // far ahead
        {1024 + 16 * kRingBytes, 256},  // ahead by laps
        {kRingBytes, 256},              // on top of the open span, one lap later
        {kRingBytes + 768, 256},        // on its last bytes
    };
    for (const RingSpan &span : impossible) {
        EXPECT_EQ(receiver_.open(span), nullptr) << span.position << ", " << span.length;
    }
    const auto second = sender_.allocate(2000);
    EXPECT_NE(receiver_.open(*second), nullptr) << "refused spans leave no trace";
    receiver_.close(*first);
    receiver_.close(*second);
    expect_passes(kRingBytes / 2, 1);
    // Room in the ring, but not in one piece.
    EXPECT_EQ(receiver_.open({kRingBytes - 256, 257}), nullptr);
    EXPECT_NE(receiver_.open({kRingBytes - 256, 256}), nullptr);
}

TEST_F(StagingRing, RandomSpansNeverLeaveTheRing) {
    Random random(3);
    const unsigned char *begin = receiver_.open({0, 1});
    receiver_.close({0, 1});
    uint64_t end = 1;
    size_t accepted = 0;
    for (int i = 0; i < 100000; ++i) {
        const RingSpan near = {end + random.below(kRingBytes), random.below(kRingBytes)};
        const RingSpan wild = {random.next() >> random.below(48),
                               random.next() >> random.below(48)};
        const RingSpan span = i % 2 == 0 ? near : wild;
        const unsigned char *data = receiver_.open(span);
        if (data != nullptr) {
            ASSERT_GE(data, begin);
            ASSERT_LE(span.length, static_cast<uint64_t>(begin + kRingBytes - data));
            receiver_.close(span);
            end = span.position + span.length;
            ++accepted;
        }
    }
    EXPECT_GT(accepted, 1000u);
}

TEST_F(StagingRing, AttachRefusesWhatWasNotOffered) {
    const auto expect_refused = [&](pid_t pid, int fd, const Cookie &cookie) {
        const char *why = nullptr;
        EXPECT_FALSE(StagingRingReceiver::attach(pid, fd, cookie, &why));
        EXPECT_NE(why, nullptr);
    };
    Cookie other = sender_.cookie();
    other.low ^= 1;
    expect_refused(getpid(), sender_.segment_fd(), other);
    expect_refused(getpid(), -1, sender_.cookie());
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{kRingBytes + 4096}, UINT64_MAX}) {
        header().data_bytes = bytes;
        expect_refused(getpid(), sender_.segment_fd(), sender_.cookie());
    }
    header().data_bytes = kRingBytes;
    header().magic ^= 1;
    expect_refused(getpid(), sender_.segment_fd(), sender_.cookie());
    header().magic ^= 1;
    attach_ring(sender_);
    const auto header_only = Segment::create("gpushm-test", 4096);
    expect_refused(getpid(), header_only->fd(), {});
}

TEST(StagingRingCreate, SizesThatCannotBeAreErrors) {
    LogCapture log;
    EXPECT_FALSE(StagingRingSender::create(SIZE_MAX));
    EXPECT_FALSE(StagingRingSender::create(SIZE_MAX - 4095));
    EXPECT_FALSE(StagingRingSender::create(0));
    EXPECT_EQ(log.count("staging ring"), 3u);
    auto rounded = StagingRingSender::create(4097);
    ASSERT_TRUE(rounded);
    EXPECT_EQ(rounded->data_bytes(), 8192u);
}

/** Passes spans from one thread to the other, as mailbox cells do: with release and acquire. */
class SpanQueue {
public:
    void push(const RingSpan &span) {
        spans_[pushed_ % kCount] = span;
        count_.store(++pushed_, std::memory_order_release);
    }
    bool pop(RingSpan *span) {
        if (count_.load(std::memory_order_acquire) == popped_) {
            return false;
        }
        *span = spans_[popped_++ % kCount];
        return true;
    }

private:
    static constexpr uint64_t kCount = 1 << 16;
    std::vector<RingSpan> spans_ = std::vector<RingSpan>(kCount);
    std::atomic<uint64_t> count_{0};
    uint64_t pushed_ = 0;
    uint64_t popped_ = 0;
};

// One mapping, so that ThreadSanitizer can judge the memory orders of `released`.
TEST(StagingRingTraffic, ReusedMemoryIsOrderedByReleased) {
    constexpr uint64_t kSpans = 20000;
    const OneMappingPerFile one_mapping;
    auto sender = StagingRingSender::create(kRingBytes);
    ASSERT_TRUE(sender);
    SpanQueue queue;
    std::thread thread([&] {
        const char *why = "";
        auto receiver =
            StagingRingReceiver::attach(getpid(), sender->segment_fd(), sender->cookie(), &why);
        ASSERT_TRUE(receiver) << why;
        const Deadline deadline;
        for (uint64_t i = 0; i < kSpans; ++i) {
            RingSpan span;
            while (!queue.pop(&span)) {
                ASSERT_FALSE(deadline.passed());
                sched_yield();
            }
            const unsigned char *data = receiver->open(span);
            ASSERT_NE(data, nullptr);
            ASSERT_EQ(pattern_mismatch(data, span.length, i), span.length);
            receiver->close(span);
        }
    });
    const Deadline deadline;
    for (uint64_t i = 0; i < kSpans; ++i) {
        std::optional<RingSpan> span;
        while (!(span = sender->allocate(i * 131 % 1500 + 1)) && !deadline.passed()) {
            sched_yield();
        }
        if (!span) {
            ADD_FAILURE() << "no room came back";
            break;
        }
        fill_pattern(sender->data(*span), span->length, i);
        queue.push(*span);
    }
    thread.join();
    sender.reset();
}

}  // namespace
}  // namespace gpushm
