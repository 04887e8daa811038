// SPDX-License-Identifier: BSD-3-Clause
// CopyEngine: small copies go to the driver together, large ones at once and on streams of their
// own.
#include "core/copy/copy_any.hpp"
#include "test/gtest/core/gpu_support.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kPiece = 512;
constexpr size_t kInFlight = 2;  // batches that are submitted before the others wait
constexpr size_t kMaxInOne = 64;

/** A window of copies from device memory to page-locked memory, piece by piece. */
class CopyBatches : public GpuTest {
protected:
    void SetUp() override {
        if (!simulated()) {
            GTEST_SKIP() << "needs a slow GPU and counts calls";
        }
        // Streams and events are there.
        start(0);
        wait_for_all();
        source_.fill(1);
        target_.fill(2);
        set_simulation("SIMCUDA_DELAY_US", "3000");
        reset_calls();
    }

    void start(size_t piece) { start(piece * kPiece, kPiece); }
    void start(size_t offset, size_t length) {
        tickets_.emplace_back();
        ASSERT_EQ(start_any(engine_, target_.data() + offset, source_.data() + offset, length,
                            &tickets_.back()),
                  Status::in_progress);
    }
    void wait_for_all() {
        for (CopyTicket &ticket : tickets_) {
            EXPECT_EQ(engine_.wait(&ticket), Status::ok);
        }
        tickets_.clear();
    }
    void expect_copied(size_t pieces) { EXPECT_EQ(target_.check(0, pieces * kPiece, 1, 2), ""); }
    static bool has_batches() { return find_cuda("cuMemcpyBatchAsync") != nullptr; }
    /** Of so many copies that are submitted together, one by one where there is no other way. */
    static void expect_submitted(unsigned long alone, unsigned long together) {
        EXPECT_EQ(calls("cuMemcpyBatchAsync"), has_batches() ? 1u : 0u);
        EXPECT_EQ(calls("cuMemcpyAsync"), alone + (has_batches() ? 0 : together));
        EXPECT_EQ(calls("cuEventRecord"), alone + 1) << "one event for all of them";
    }

    static constexpr size_t kBytes = 200 * kPiece;
    Buffer source_{MemoryKind::device, kBytes};
    Buffer target_{MemoryKind::pinned, kBytes};
    CopyEngine engine_;
    std::deque<CopyTicket> tickets_;
};

TEST_F(CopyBatches, WhatIsStartedBehindTwoGoesOutTogether) {
    for (size_t piece = 0; piece < 12; ++piece) {
        start(piece);
    }
    EXPECT_EQ(calls("cuMemcpyAsync"), kInFlight) << "the others wait";
    EXPECT_EQ(calls("cuMemcpyBatchAsync"), 0u);
    while (engine_.progress() == 0) {
    }
    expect_submitted(kInFlight, 10);
    wait_for_all();
    expect_copied(12);
    expect_submitted(kInFlight, 10);
    EXPECT_EQ(engine_.progress(), 0u);
}

TEST_F(CopyBatches, OneThatIsFullDoesNotWait) {
    for (size_t piece = 0; piece < kInFlight + kMaxInOne - 1; ++piece) {
        start(piece);
    }
    EXPECT_EQ(calls("cuMemcpyBatchAsync"), 0u);
    start(kInFlight + kMaxInOne - 1);
    expect_submitted(kInFlight, kMaxInOne);
    start(kInFlight + kMaxInOne);
    EXPECT_EQ(calls("cuEventRecord"), kInFlight + 1) << "the next one begins anew";
    wait_for_all();
    expect_copied(kInFlight + kMaxInOne + 1);
}

TEST_F(CopyBatches, OneThatIsLongDoesNotWait) {
    constexpr size_t kLong = 192 << 10;
    for (size_t piece = 0; piece < 5; ++piece) {
        start(piece);
    }
    start(0, kBytes);
    start(0, kLong - kBytes - 3 * kPiece - 1);
    EXPECT_EQ(calls("cuEventRecord"), kInFlight) << "a byte is missing";
    start(0);
    expect_submitted(kInFlight, 6);
    wait_for_all();
    expect_copied(kBytes / kPiece);
}

TEST_F(CopyBatches, LongOnesThatMayWaitGoOutTogether) {
    constexpr size_t kLong = 192 << 10;
    constexpr size_t kCount = 9;
    Buffer source(MemoryKind::device, kCount * kLong);
    Buffer target(MemoryKind::pinned, kCount * kLong);
    source.fill(5);
    target.fill(2);
    reset_calls();
    auto scope = std::make_unique<CopyEngine::Scope>(engine_);
    for (size_t i = 0; i < kCount; ++i) {
        CopyJob job = {target.data() + i * kLong, source.data() + i * kLong, kLong,
                       query_memory(source.data()), CopyDirection::from_gpu};
        job.joint_bytes = 4 * kLong;
        tickets_.emplace_back();
        ASSERT_EQ(engine_.start(job, &tickets_.back()), Status::in_progress);
        EXPECT_EQ(calls("cuEventRecord"), i < 2 ? i + 1 : i < 5 ? 2 : 3) << i;
    }
    scope.reset();
    EXPECT_EQ(calls("cuEventRecord"), 4u) << "nothing waits longer than the scope";
    EXPECT_EQ(calls("cuMemcpyBatchAsync"), has_batches() ? 2u : 0u);
    EXPECT_EQ(calls("cuMemcpyAsync"), has_batches() ? kInFlight : kCount);
    // Without one each starts at once.
    CopyJob job = {target.data(), source.data(), kLong, query_memory(source.data()),
                   CopyDirection::from_gpu};
    job.joint_bytes = 4 * kLong;
    tickets_.emplace_back();
    ASSERT_EQ(engine_.start(job, &tickets_.back()), Status::in_progress);
    EXPECT_EQ(calls("cuEventRecord"), 5u);
    wait_for_all();
    EXPECT_EQ(target.check(0, kCount * kLong, 5, 2), "");
}

TEST_F(CopyBatches, RefusedOneGoesOutOneByOne) {
    set_simulation("SIMCUDA_FAIL", "cuMemcpyBatchAsync:1:1");
    const LogCapture log;
    for (size_t piece = 0; piece < 12; ++piece) {
        start(piece);
    }
    wait_for_all();
    EXPECT_EQ(calls("cuMemcpyBatchAsync"), has_batches() ? 1u : 0u);
    EXPECT_EQ(calls("cuMemcpyAsync"), 12u);
    EXPECT_EQ(calls("cuEventRecord"), kInFlight + 1);
    EXPECT_EQ(log.count("failed"), 0u);
    expect_copied(12);
}

TEST_F(CopyBatches, DirectionsDoNotWaitForEachOther) {
    for (size_t piece = 0; piece < 4; ++piece) {
        start(piece);
    }
    Buffer device(MemoryKind::device, kPiece);
    Buffer host(MemoryKind::pinned, kPiece);
    host.fill(7);
    reset_calls();
    tickets_.emplace_back();
    ASSERT_EQ(start_any(engine_, device.data(), host.data(), kPiece, &tickets_.back()),
              Status::in_progress);
    EXPECT_EQ(calls("cuMemcpyAsync"), 1u) << "its stream was idle";
    wait_for_all();
    EXPECT_EQ(device.check(0, kPiece, 7, 0), "");
}

TEST_F(CopyBatches, SmallCopiesOvertakeALargeOne) {
    constexpr size_t kBulk = 1 << 20;
    Buffer large_source(MemoryKind::device, kBulk);
    Buffer large_target(MemoryKind::pinned, kBulk);
    large_source.fill(5);
    CopyTicket large;
    set_simulation("SIMCUDA_DELAY_US", "50000");
    ASSERT_EQ(start_any(engine_, large_target.data(), large_source.data(), kBulk, &large),
              Status::in_progress);
    set_simulation("SIMCUDA_DELAY_US", "5");
    start(0);
    wait_for_all();
    EXPECT_EQ(engine_.poll(&large), Status::in_progress) << "it takes 50 ms";
    EXPECT_EQ(engine_.wait(&large), Status::ok);
    EXPECT_EQ(large_target.check(0, kBulk, 5, 0), "");
    expect_copied(1);
}

TEST_F(CopyBatches, AWindowOfRandomCopiesArrives) {
    set_simulation("SIMCUDA_DELAY_US", "20");
    set_simulation("SIMCUDA_SEED", "3");
    Random random(9);
    std::vector<size_t> order(200);
    for (uint64_t round = 10; round < 20; ++round) {
        source_.fill(round);
        for (size_t i = 0; i < order.size(); ++i) {
            order[i] = i;
            std::swap(order[i], order[random.below(i + 1)]);
        }
        for (const size_t piece : order) {
            start(piece);
            if (random.below(10) == 0) {
                engine_.progress();
            }
        }
        wait_for_all();
        ASSERT_EQ(target_.check(0, kBytes, round, 0), "");
    }
    set_simulation("SIMCUDA_SEED", "0");
}

/** The function has an argument more in CUDA 12.8 than in 13.0. */
TEST_F(CopyBatches, BothFormsOfTheFunctionDoTheSame) {
    if (!has_batches()) {
        GTEST_SKIP() << "this driver has no cuMemcpyBatchAsync";
    }
    CUstream stream = nullptr;
    ASSERT_EQ(cuda_.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (const bool with_index : {true, false}) {
        CudaDriver driver = cuda_;
        if (with_index) {
            driver.memcpy_batch_plain = nullptr;
        } else {
            driver.memcpy_batch_with_index = nullptr;
        }
        if (!driver.has_memcpy_batch()) {
            continue;  // a driver older than 13.0
        }
        source_.fill(10 + with_index);
        target_.fill(2);
        CUdeviceptr destinations[3];
        CUdeviceptr sources[3];
        size_t lengths[] = {100, 200, 300};
        size_t offset = 0;
        for (size_t i = 0; i < 3; ++i) {
            destinations[i] = reinterpret_cast<CUdeviceptr>(target_.data() + offset);
            sources[i] = reinterpret_cast<CUdeviceptr>(source_.data() + offset);
            offset += lengths[i];
        }
        ASSERT_EQ(driver.memcpy_batch(destinations, sources, lengths, 3, stream), CUDA_SUCCESS);
        ASSERT_EQ(cuda_.stream_synchronize(stream), CUDA_SUCCESS);
        EXPECT_EQ(target_.check(0, 600, 10 + with_index, 2), "");
    }
    EXPECT_EQ(cuda_.stream_destroy(stream), CUDA_SUCCESS);
    CudaDriver none = cuda_;
    none.memcpy_batch_plain = nullptr;
    none.memcpy_batch_with_index = nullptr;
    EXPECT_FALSE(none.has_memcpy_batch());
}

}  // namespace
}  // namespace gpushm
