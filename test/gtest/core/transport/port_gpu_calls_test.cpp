// SPDX-License-Identifier: BSD-3-Clause
// What a message costs in calls of the driver, on both sides together, once everything is warm. A
// change of these numbers is a change of latency: a pointer query takes about 0.1 us, a copy with
// its event about 2 us of the CPU. The ways through a mapping are counted in
// port_gpu_mapping_test.cpp.
#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/counted_pread.hpp"
#include "test/gtest/core/transport/port_support.hpp"

#include <algorithm>
#include <iterator>

namespace gpushm {
namespace {

using namespace test;

class PortGpuCalls : public GpuTest {
protected:
    void SetUp() override {
        if (!simulated()) {
            GTEST_SKIP() << "counts calls";
        }
        make_ring_ready(a_, b_);
        make_ring_ready(b_, a_);
    }
    ~PortGpuCalls() override {
        a_.destroy();
        b_.destroy();
    }

    struct Calls {
        unsigned long queries;  // cuPointerGetAttributes
        unsigned long copies;   // cuMemcpyAsync, each with cuEventRecord and cuCtxGetId
        unsigned long polls;    // cuEventQuery, at least
    };
    /** Exactly these, and no call else but two exchanges of the capture mode around what is called
     * at
     * once. */
    static void expect_calls(const Calls &expected) {
        EXPECT_EQ(calls("cuPointerGetAttributes"), expected.queries);
        unsigned long sum = expected.queries;
        for (const char *function : {"cuMemcpyAsync", "cuEventRecord", "cuCtxGetId"}) {
            EXPECT_EQ(calls(function), expected.copies) << function;
            sum += expected.copies;
        }
        const unsigned long polls = calls("cuEventQuery");
        EXPECT_GE(polls, expected.polls);
        const unsigned long exchanges = calls("cuThreadExchangeStreamCaptureMode");
        EXPECT_LE(exchanges, capture_mode_calls() * (expected.copies + polls));
        EXPECT_EQ(exchanges % 2, 0u) << "the mode of the caller must be restored";
        EXPECT_EQ(calls_of_all(), sum + polls + exchanges) << "calls of another function";
    }

    /** One message of `pieces`, from the call to its arrival. */
    void send(const Piece *pieces, size_t count) {
        const size_t before = b_.messages.size();
        Outcome outcome;
        const Status status =
            connection_.am_pieces(1, nullptr, 0, pieces, count, nullptr, outcome.completion());
        ASSERT_TRUE(status == Status::ok || status == Status::in_progress);
        ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return b_.messages.size() > before; }));
        settle({&a_, &b_});
    }
    void transfer(bool put, Buffer &source, Buffer &target, size_t length) {
        const Registration registration(put ? target.data() : source.data(), length);
        Outcome outcome;
        ASSERT_EQ(put ? connection_.put(source.data(), length, registration.at(), nullptr,
                                        outcome.completion())
                      : connection_.get(target.data(), length, registration.at(), nullptr,
                                        outcome.completion()),
                  Status::in_progress);
        ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
        ASSERT_EQ(outcome.status, Status::ok);
    }

    TestPort a_;
    TestPort b_;
    Connection &connection_ = a_.connection(b_);
};

/** Where its pages lie costs a system call: one on either side, where it goes in one piece. */
TEST_F(PortGpuCalls, ManagedMemoryIsLookedAtOnceOnEachSide) {
    constexpr size_t kBytes = 16u << 10;
    Buffer source(MemoryKind::managed, kBytes);
    Buffer target(MemoryKind::managed, kBytes);
    const auto looks_of = [&](bool put) {
        source.move_to_gpu();
        target.move_to_gpu();
        const unsigned long before = pread_calls();
        transfer(put, source, target, kBytes);
        return pread_calls() - before;
    };
    looks_of(false);
    EXPECT_EQ(looks_of(false), 2u);
    EXPECT_EQ(looks_of(true), 2u);
}

TEST_F(PortGpuCalls, EagerFromADevice) {
    Buffer buffer(MemoryKind::device, 4096);
    const Piece pieces[] = {{buffer.data(), 4096}};
    send(pieces, 1);
    reset_calls();
    send(pieces, 1);
    // The sender asks once what the piece is; the receiver asks nothing.
    expect_calls({1, 1, 1});
}

TEST_F(PortGpuCalls, EagerFromADeviceInTwoPieces) {
    Buffer buffer(MemoryKind::device, 4096);
    const Piece pieces[] = {{buffer.data(), 1000}, {buffer.data() + 2000, 2000}};
    send(pieces, 2);
    reset_calls();
    send(pieces, 2);
    expect_calls({2, 2, 2});
}

TEST_F(PortGpuCalls, EagerFromADeviceInABurst) {
    Buffer buffer(MemoryKind::device, 4096);
    const Piece pieces[] = {{buffer.data(), 1000}};
    send(pieces, 1);
    if (find_cuda("cuMemcpyBatchAsync") == nullptr) {
        GTEST_SKIP() << "this driver has no batches";
    }
    set_simulation("SIMCUDA_DELAY_US", "3000");
    const size_t before = b_.messages.size();
    reset_calls();
    for (int i = 0; i < 10; ++i) {
        ASSERT_EQ(connection_.am_pieces(1, nullptr, 0, pieces, 1, nullptr, {}),
                  Status::in_progress);
    }
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return b_.messages.size() == before + 10; }));
    EXPECT_EQ(calls("cuPointerGetAttributes"), 10u);
    EXPECT_EQ(calls("cuMemcpyAsync"), 2u);
    EXPECT_EQ(calls("cuMemcpyBatchAsync"), 1u) << "the other eight";
    EXPECT_EQ(calls("cuEventRecord"), 3u);
}

TEST_F(PortGpuCalls, MessagesFromTheHost) {
    reset_calls();
    unsigned char bytes[2000] = {};
    PatternMessage message = {2000, 1};
    size_t packed;
    ASSERT_EQ(connection_.am_short(1, 0, bytes, 80), Status::ok);
    ASSERT_EQ(connection_.am_pack(1, PatternMessage::pack, &message, &packed), Status::ok);
    settle({&a_, &b_});
    expect_calls({0, 0, 0});
    const Piece pieces[] = {{bytes, 1000}, {bytes + 1000, 1000}};
    send(pieces, 2);
    expect_calls({2, 0, 0});  // the query that says that they are host memory
    EXPECT_EQ(b_.messages.size(), 3u);
}

TEST_F(PortGpuCalls, TransfersFromDeviceToDevice) {
    Buffer source(MemoryKind::device, 1 << 20);
    Buffer target(MemoryKind::device, 1 << 20);
    transfer(true, source, target, 4096);
    transfer(false, source, target, 4096);
    reset_calls();
    transfer(true, source, target, 4096);
    // The source once, the target for each chunk; a copy into the ring and one out of it.
    expect_calls({2, 2, 2});
    reset_calls();
    transfer(false, source, target, 4096);
    expect_calls({2, 2, 2});
}

/** Given to the driver together they would end together, and one side would copy after the other.
 */
TEST_F(PortGpuCalls, ChunksOfOneTransferEndOneByOne) {
    constexpr size_t kLength = 1 << 20;
    constexpr unsigned long kChunks = 4;
    PortConfig config = kSmallPort;
    config.ring_bytes = 8 << 20;
    config.gpu_chunk_bytes = kLength / kChunks;
    TestPort sender(config);
    TestPort receiver(config);
    make_ring_ready(sender, receiver);
    Buffer source(MemoryKind::device, kLength);
    Buffer target(MemoryKind::device, kLength);
    source.fill(1);
    target.fill(2);
    const Registration registration(target.data(), kLength);
    Outcome outcome;
    reset_calls();
    ASSERT_EQ(sender.connection(receiver).put(source.data(), kLength, registration.at(), nullptr,
                                              outcome.completion()),
              Status::in_progress);
    ASSERT_TRUE(progress_until({&sender, &receiver}, [&] { return outcome.done(); }));
    EXPECT_EQ(calls("cuEventRecord"), 2 * kChunks) << "both sides";
    EXPECT_EQ(target.check(0, kLength, 1, 2), "");
    sender.destroy();
    receiver.destroy();
}

TEST_F(PortGpuCalls, LongTransfersUnderWayTogether) {
    if (find_cuda("cuMemcpyBatchAsync") == nullptr) {
        GTEST_SKIP() << "this driver has no batches";
    }
    constexpr size_t kLength = 512 << 10;
    constexpr size_t kCount = 12;
    PortConfig config = kSmallPort;
    config.ring_bytes = 8 << 20;
    config.gpu_chunk_bytes = kLength;
    TestPort sender(config);
    TestPort receiver(config);
    make_ring_ready(sender, receiver);
    Connection &connection = sender.connection(receiver);
    Buffer source(MemoryKind::device, kCount * kLength);
    Buffer target(MemoryKind::device, kCount * kLength);
    source.fill(1);
    target.fill(2);
    const Registration registration(target.data(), kCount * kLength);
    Outcome outcomes[kCount];
    set_simulation("SIMCUDA_DELAY_US", "3000");
    reset_calls();
    for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(connection.put(source.data() + i * kLength, kLength, registration.at(i * kLength),
                                 nullptr, outcomes[i].completion()),
                  Status::in_progress);
    }
    ASSERT_TRUE(progress_until({&sender, &receiver}, [&] {
        return std::all_of(std::begin(outcomes), std::end(outcomes),
                           [](const Outcome &outcome) { return outcome.done(); });
    }));
    set_simulation("SIMCUDA_DELAY_US", "5");
    EXPECT_GE(calls("cuMemcpyBatchAsync"), 1u);
    EXPECT_LT(calls("cuEventRecord"), 2 * kCount) << "one by one";
    EXPECT_EQ(target.check(0, kCount * kLength, 1, 2), "");
    sender.destroy();
    receiver.destroy();
}

TEST_F(PortGpuCalls, TransfersBetweenHosts) {
    Buffer source(MemoryKind::host, 4096);
    Buffer target(MemoryKind::pinned, 4096);
    reset_calls();
    transfer(true, source, target, 4096);
    expect_calls({2, 0, 0});
    reset_calls();
    transfer(false, source, target, 4096);
    expect_calls({2, 0, 0});
}

TEST_F(PortGpuCalls, NothingIsCalledAtRest) {
    reset_calls();
    for (int i = 0; i < 100000; ++i) {
        a_->progress();
    }
    EXPECT_TRUE(a_->arm());
    expect_calls({0, 0, 0});
}

}  // namespace
}  // namespace gpushm
