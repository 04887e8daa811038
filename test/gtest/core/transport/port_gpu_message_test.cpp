// SPDX-License-Identifier: BSD-3-Clause
// Active messages with pieces in GPU memory: content, order, and what a completion means.
#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/core/transport/port_gpu_peer.hpp"
#include "test/gtest/core/transport/port_support.hpp"

#include "core/copy/copy_any.hpp"
#include "core/kernels/kernel_image.hpp"
#include "core/memory/numa_node.hpp"
#include "core/memory/page_residency.hpp"
#include "core/shm/staging_ring.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <tuple>

namespace gpushm {
namespace {

using namespace test;

constexpr char kOwner = 0;

/** Where this process has mapped the header of the only ring; null without one. */
RingHeader *mapped_ring() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find("gpushm-ring") != std::string::npos) {
            return reinterpret_cast<RingHeader *>(std::stoull(line, nullptr, 16));
        }
    }
    return nullptr;
}

/** One buffer of every kind, with the same pattern. */
class PortGpuMessages : public GpuTest {
protected:
    PortGpuMessages() {
        for (const MemoryKind kind : kAllKinds) {
            buffers_.push_back(std::make_unique<Buffer>(kind, kSlotBytes));
        }
    }
    ~PortGpuMessages() override {
        a_.destroy();
        b_.destroy();
        c_.destroy();
        if (simulated()) {
            set_simulation("SIMCUDA_SEED", "0");
        }
    }

    void fill(uint64_t seed) {
        for (const auto &buffer : buffers_) {
            buffer->fill(seed);
        }
    }
    /** The bytes [begin, end) of the pattern, in memory of a kind. */
    Piece piece(size_t kind, size_t begin, size_t end) {
        return {buffers_[kind]->data() + begin, end - begin};
    }
    Status send(uint8_t id, const Piece *pieces, size_t count, const Completion &completion,
                const void *owner = nullptr) {
        return send_when_possible(a_, b_, [&] {
            return connection_.am_pieces(id, nullptr, 0, pieces, count, owner, completion);
        });
    }
    void make_slow(const char *delay_us) {
        if (simulated()) {
            set_simulation("SIMCUDA_DELAY_US", delay_us);
        }
    }
    void expect_message(uint8_t id, size_t length, uint64_t seed) {
        ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return !b_.messages.empty(); }));
        EXPECT_EQ(check_message(b_.messages.front(), id, length, seed), "");
        b_.messages.pop_front();
    }

    std::vector<std::unique_ptr<Buffer>> buffers_;
    TestPort a_;
    TestPort b_;
    TestPort c_;
    Connection &connection_ = a_.connection(b_);
};

TEST_F(PortGpuMessages, PiecesOfAllKindsArriveExactly) {
    Random random(1);
    fill(3);
    for (int round = 0; round < 600; ++round) {
        const size_t length = round <= 130  ? round
                              : round < 140 ? kSlotBytes - (139 - round)
                                            : random.below(kSlotBytes + 1);
        size_t cuts[] = {0, random.below(length + 1), random.below(length + 1),
                         random.below(length + 1), length};
        std::sort(std::begin(cuts), std::end(cuts));
        Piece pieces[4];
        for (size_t i = 0; i < 4; ++i) {
            pieces[i] = piece(random.below(4), cuts[i], cuts[i + 1]);
        }
        Outcome outcome;
        const Status status = send(9, pieces, 4, outcome.completion());
        ASSERT_TRUE(status == Status::ok || status == Status::in_progress) << round;
        expect_message(9, length, 3);
        ASSERT_TRUE(progress_until({&a_}, [&] { return a_->idle(); }));
        ASSERT_EQ(outcome.calls, status == Status::in_progress ? 1u : 0u);
        ASSERT_EQ(outcome.status, status == Status::in_progress ? Status::ok : Status::in_progress);
        ASSERT_FALSE(HasFatalFailure());
    }
}

TEST_F(PortGpuMessages, EmptyOnesArrive) {
    const Piece pieces[] = {piece(2, 0, 0), piece(3, 5, 5)};
    for (int round = 0; round < 3; ++round) {
        ASSERT_EQ(send(1, pieces, 2, {}), Status::ok);
        expect_message(1, 0, 0);
        make_ring_ready(a_, b_);
    }
}

TEST_F(PortGpuMessages, RingThatIsTooSmallIsNoObstacle) {
    TestPort small({4096, 4096, 4096, 64});
    make_ring_ready(small, b_);
    fill(4);
    for (const size_t length : {2048, 2049, 8320}) {
        const Piece pieces[] = {piece(2, 0, length)};
        Outcome outcome;
        const Status status = send_when_possible(small, b_, [&] {
            return small.connection(b_).am_pieces(1, nullptr, 0, pieces, 1, nullptr,
                                                  outcome.completion());
        });
        ASSERT_TRUE(status == Status::ok || status == Status::in_progress);
        ASSERT_TRUE(progress_until({&small, &b_}, [&] { return !b_.messages.empty(); }));
        EXPECT_EQ(check_message(b_.messages.front(), 1, length, 4), "");
        b_.messages.pop_front();
        settle({&small});
    }
}

TEST_F(PortGpuMessages, CompletionMeansThatTheBufferIsFreeAndTheMessageWhole) {
    make_ring_ready(a_, b_);
    make_slow("20000");
    for (const size_t kind : {2, 3}) {
        make_slow("5");
        fill(5);
        buffers_[3]->move_to_gpu();
        if (kind == 3 && resides_on_cpu(buffers_[3]->data(), kSlotBytes)) {
            GTEST_SKIP() << "this driver leaves managed memory on the CPU";
        }
        make_slow("20000");
        Outcome outcome;
        const Piece pieces[] = {piece(0, 0, 100), piece(kind, 100, 4000), piece(1, 4000, 4100),
                                piece(kind, 4100, 8000)};
        ASSERT_EQ(send(7, pieces, 4, outcome.completion()), Status::in_progress);
        a_->progress();
        b_->progress();
        if (simulated()) {
            EXPECT_FALSE(outcome.done()) << "the copy takes 20 ms";
            EXPECT_TRUE(b_.messages.empty());
            EXPECT_FALSE(a_->arm());
        }
        ASSERT_TRUE(progress_until({&a_}, [&] { return outcome.done(); }));
        EXPECT_EQ(outcome.status, Status::ok);
        make_slow("5");
        fill(6);
        b_->progress();  // it is there already
        ASSERT_EQ(b_.messages.size(), 1u);
        expect_message(7, 8000, 5);
    }
}

TEST_F(PortGpuMessages, ManagedMemoryThatIsOnTheCpuNeedsNoGpu) {
    make_ring_ready(a_, b_);
    const Piece pieces[] = {piece(3, 0, 8000)};
    fill(5);
    if (simulated()) {
        reset_calls();
    }
    ASSERT_EQ(send(7, pieces, 1, {}), Status::ok);
    fill(6);
    expect_message(7, 8000, 5);
    if (simulated()) {
        EXPECT_EQ(calls("cuMemcpyAsync"), 0u);
    }
}

TEST_F(PortGpuMessages, NothingOvertakesAMessageThatAGpuReads) {
    make_ring_ready(a_, b_);
    make_slow("10000");
    fill(1);
    const Piece device[] = {piece(2, 0, 1000)};
    const Piece host[] = {piece(0, 0, 1000)};
    PatternMessage packed = {1000, 1};
    size_t length;
    ASSERT_EQ(send(1, device, 1, {}), Status::in_progress);
    ASSERT_EQ(connection_.am_pieces(2, nullptr, 0, device, 1, nullptr, {}), Status::in_progress)
        << "several may be on their way";
    if (simulated()) {
        EXPECT_EQ(connection_.am_short(9, 0, nullptr, 0), Status::no_resource);
        EXPECT_EQ(connection_.am_pack(9, PatternMessage::pack, &packed, &length),
                  Status::no_resource);
        EXPECT_EQ(connection_.am_pieces(9, nullptr, 0, host, 1, nullptr, {}), Status::no_resource);
    }
    ASSERT_EQ(send(3, host, 1, {}), Status::ok);
    ASSERT_EQ(send(4, device, 1, {}), Status::in_progress);
    ASSERT_EQ(
        send_when_possible(
            a_, b_, [&] { return connection_.am_pack(5, PatternMessage::pack, &packed, &length); }),
        Status::ok);
    for (uint8_t id = 1; id <= 5; ++id) {
        expect_message(id, 1000, 1);
    }
    EXPECT_TRUE(b_.messages.empty());
}

TEST_F(PortGpuMessages, OtherSendersAreNotDelayed) {
    make_ring_ready(a_, b_);
    make_slow("50000");
    const Piece device[] = {piece(2, 0, 1000)};
    Outcome outcome;
    ASSERT_EQ(send(1, device, 1, outcome.completion()), Status::in_progress);
    a_->progress();
    ASSERT_EQ(c_.connection(b_).am_short(2, 0, nullptr, 0), Status::ok);
    b_->progress();
    // A real GPU may have copied by now; then the first message is there, too.
    ASSERT_FALSE(b_.messages.empty());
    EXPECT_EQ(b_.messages.back().id, 2);
    EXPECT_TRUE(!simulated() || b_.messages.size() == 1);
    ASSERT_TRUE(progress_until({&a_}, [&] { return outcome.done(); }));
}

TEST_F(PortGpuMessages, OrderHoldsInARandomMixture) {
    if (simulated()) {
        set_simulation("SIMCUDA_SEED", "7");
    }
    Random random(4);
    fill(1);
    buffers_[3]->move_to_gpu();
    uint64_t received = 0;
    b_.on_message = [&](uint8_t, const unsigned char *data, size_t length) {
        uint64_t sequence;
        memcpy(&sequence, data, 8);
        ASSERT_EQ(sequence, received);
        ASSERT_EQ(pattern_mismatch(data + 8, length - 8, 1), length - 8);
        ++received;
    };
    struct Sequenced {
        uint64_t sequence;
        static size_t pack(void *destination, void *self) {
            memcpy(destination, self, 8);
            fill_pattern(static_cast<unsigned char *>(destination) + 8, 500, 1);
            return 508;
        }
    };
    unsigned completed = 0;
    unsigned started = 0;
    const Completion completion = {[](void *count, Status status) {
                                       EXPECT_EQ(status, Status::ok);
                                       ++*static_cast<unsigned *>(count);
                                   },
                                   &completed};
    for (uint64_t sequence = 0; sequence < 3000; ++sequence) {
        const size_t way = random.below(6);
        const size_t length = random.below(random.below(4) == 0 ? 8000 : 200);
        const size_t middle = random.below(length + 1);
        const Piece pieces[] = {piece(way % 4, 0, middle), piece(random.below(4), middle, length)};
        Sequenced message = {sequence};
        size_t packed;
        const Status status = send_when_possible(a_, b_, [&] {
            return way == 4 ? connection_.am_short(1, sequence, nullptr, 0)
                   : way == 5
                       ? connection_.am_pack(1, Sequenced::pack, &message, &packed)
                       : connection_.am_pieces(1, &sequence, 8, pieces, 2, nullptr, completion);
        });
        ASSERT_TRUE(status == Status::ok || status == Status::in_progress);
        started += status == Status::in_progress;
        if (random.below(20) == 0) {
            b_->progress();
        }
        if (random.below(100) == 0) {
            std::ignore = *static_cast<volatile unsigned char *>(buffers_[3]->data());
        } else if (random.below(100) == 0) {
            buffers_[3]->move_to_gpu();
        }
    }
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return received == 3000; }));
    settle({&a_, &b_});
    EXPECT_EQ(completed, started);
    EXPECT_GT(started, 700u);
}

TEST_F(PortGpuMessages, CancelledOwnersMemoryIsFreeAndItsMessageWhole) {
    make_ring_ready(a_, b_);
    fill(8);
    make_slow("20000");
    Outcome outcome;
    const Piece pieces[] = {piece(2, 0, 3000), piece(3, 3000, 6000)};
    ASSERT_EQ(send(1, pieces, 2, outcome.completion(), &kOwner), Status::in_progress);
    connection_.cancel(&kOwner);
    make_slow("5");
    fill(9);
    expect_message(1, 6000, 8);
    settle({&a_, &b_});
    EXPECT_EQ(outcome.calls, 0u);
}

/** Who waits for room finds it. */
TEST_F(PortGpuMessages, NonsenseInTheRingIsNoticedByWhoeverHasNothingUnderWay) {
    make_ring_ready(a_, b_);
    settle({&a_, &b_});
    const LogCapture log;
    RingHeader *const ring = mapped_ring();
    ASSERT_NE(ring, nullptr);
    const Piece pieces[] = {piece(2, 0, 3000)};
    Outcome outcome;
    for (int i = 0; i < 1000 && !connection_.failed(); ++i) {
        ring->released.store(uint64_t{1} << 60);  // where the receiver has written anew
        if (connection_.am_pieces(3, nullptr, 0, pieces, 1, nullptr, outcome.completion()) ==
            Status::in_progress) {
            settle({&a_, &b_});
        } else {
            connection_.check_peer();
        }
    }
    EXPECT_TRUE(connection_.failed());
    EXPECT_EQ(log.count("invalid data into the staging ring"), 1u);
    EXPECT_TRUE(progress_until({&a_}, [&] { return a_.failed_connections.size() == 1; }));
}

TEST_F(PortGpuMessages, RingLiesNextToTheGpuThatWritesIt) {
    const int node = numa_node_of(query_memory(buffers_[2]->data()));
    if (node == kAnyNumaNode || access("/proc/self/numa_maps", R_OK) != 0) {
        GTEST_SKIP() << "there is nothing to choose, or nothing to see";
    }
    Outcome outcome;
    const Piece pieces[] = {piece(2, 0, 3000)};
    ASSERT_NE(send(1, pieces, 1, outcome.completion()), Status::gpu_error);
    settle({&a_, &b_});
    const std::string line = "prefer:" + std::to_string(node) + " file=/memfd:gpushm-ring";
    EXPECT_EQ(mappings_named(line, "numa_maps"), 2u) << "the sender's and the receiver's mapping";
}

TEST_F(PortGpuMessages, PortThatEndsLeavesNoCopyBehind) {
    make_ring_ready(a_, b_);
    make_slow("20000");
    Outcome outcome;
    const Piece pieces[] = {piece(2, 0, 3000)};
    ASSERT_EQ(send(1, pieces, 1, outcome.completion()), Status::in_progress);
    a_.destroy();  // the ring is unmapped: the copy would fault in it
    make_slow("5");
    EXPECT_EQ(cuda_.stream_synchronize(nullptr), CUDA_SUCCESS);
}

/** While a handler copies the payload of one message to a GPU, that of the message behind it is
 * read: then its slot is not read again. In a process of its own, for the setting of the kernel is
 * the process's. */
FreshProcess slots_read_ahead("slots-are-read-ahead", [] {
    constexpr size_t kBytes = 5000;
    const std::shared_ptr<StandbyKernel> kernel = fresh_kernel(200'000, 1'000'000'000);
    CHECK(kernel);
    Buffer locked(MemoryKind::pinned, 2 * kBytes);
    Buffer elsewhere(MemoryKind::device, 2 * kBytes);
    Buffer destination(MemoryKind::device, kBytes);
    TestPort from;
    TestPort to;
    Connection &connection = from.connection(to);
    std::vector<unsigned char> payload(kBytes);
    bool copied = true;
    to.on_message = [&](uint8_t id, const unsigned char *data, size_t length) {
        if (id == 2) {
            // All warps do this copy, so behind it what was to be read has been read.
            copied &= copy_any(elsewhere.data(), locked.data(), 2 * kBytes) == Status::ok;
            fill_pattern(const_cast<unsigned char *>(data), length, 3);
        }
        copied &= copy_any(destination.data(), data, length) == Status::ok;
    };
    const Deadline deadline;
    bool was_held = false;
    while (!was_held && copied && !deadline.passed()) {
        while (!kernel->alive() && !deadline.passed()) {
            kernel->note_copy();
            to->progress();
        }
        for (const uint8_t id : {1, 2}) {
            fill_pattern(payload.data(), kBytes, id);
            const Piece piece = {payload.data(), kBytes};
            CHECK(connection.am_pieces(id, nullptr, 0, &piece, 1, nullptr, {}) == Status::ok);
        }
        to->progress();
        // It may leave at any time: then the slot is read, in which there is something else by now.
        was_held = destination.check(0, kBytes, 2, 0).empty();
        CHECK(was_held || destination.check(0, kBytes, 3, 0).empty());
    }
    return copied && was_held ? 0 : 1;
});

// Between two copies of a handler a real kernel leaves where nobody tells of calls that wait for
// the GPU.
TEST(PortGpuProcesses, SlotsAreReadAhead) {
    SKIP_UNLESS_SIMULATED();
    if (kernel_fatbin().data == nullptr) {
        GTEST_SKIP() << "built without a CUDA compiler";
    }
    EXPECT_EQ(slots_read_ahead.run(), 0);
}

}  // namespace
}  // namespace gpushm
