// SPDX-License-Identifier: BSD-3-Clause
// SegmentTable: shared segments are page-locked when a GPU first touches them, and not before.
#include "test/gtest/core/gpu_support.hpp"

#include "core/copy/copy_any.hpp"
#include "core/pinning/segment_table.hpp"
#include "core/shm/segment.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 65536;

class SegmentTableTest : public GpuTest {
protected:
    SegmentTableTest() : segment_(Segment::create("gpushm-test", kBytes)) {}
    ~SegmentTableTest() override { SegmentTable::instance().set_pinning_enabled(true); }

    /** A copy of the GPU into the middle of the segment, checked. */
    void expect_copies(uint64_t seed) {
        Buffer device(MemoryKind::device, 4096);
        device.fill(seed);
        ASSERT_EQ(copy_any(segment_->data() + 8192, device.data(), 4096), Status::ok);
        EXPECT_EQ(pattern_mismatch(segment_->data() + 8192, 4096, seed), 4096u);
    }

    std::optional<Segment> segment_;
};

TEST_F(SegmentTableTest, SegmentIsPinnedWholeAtTheFirstGpuCopy) {
    EXPECT_EQ(query_memory(segment_->data()).kind, MemoryKind::host);
    expect_copies(1);
    EXPECT_EQ(query_memory(segment_->data()).kind, MemoryKind::pinned);
    EXPECT_EQ(query_memory(segment_->data() + kBytes - 1).kind, MemoryKind::pinned);
    expect_copies(2);
}

TEST_F(SegmentTableTest, AlsoAsTheSourceOfACopy) {
    Buffer device(MemoryKind::device, 4096);
    fill_pattern(segment_->data() + 100, 4096, 5);
    ASSERT_EQ(copy_any(device.data(), segment_->data() + 100, 4096), Status::ok);
    EXPECT_EQ(device.check(0, 4096, 5, 0), "");
    EXPECT_EQ(query_memory(segment_->data()).kind, MemoryKind::pinned);
}

/** What lies there in the child is no segment, but may be memory of a GPU. */
TEST_F(SegmentTableTest, AForkedChildHasNone) {
    ASSERT_TRUE(SegmentTable::instance().contains(segment_->data()));
    const pid_t child = fork();
    if (child == 0) {
        _exit(SegmentTable::instance().contains(segment_->data()) ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST_F(SegmentTableTest, HostCopiesPinNothing) {
    Buffer host(MemoryKind::host, 4096);
    ASSERT_EQ(copy_any(segment_->data(), host.data(), 4096), Status::ok);
    ASSERT_EQ(copy_any(host.data(), segment_->data(), 4096), Status::ok);
    EXPECT_EQ(query_memory(segment_->data()).kind, MemoryKind::host);
}

TEST_F(SegmentTableTest, OtherMemoryIsNeverPinned) {
    const auto neighbour = Segment::create("gpushm-test", kBytes);
    Buffer host(MemoryKind::host, 4096);
    Buffer device(MemoryKind::device, 4096);
    ASSERT_EQ(copy_any(device.data(), host.data(), 4096), Status::ok);
    expect_copies(1);
    EXPECT_EQ(query_memory(host.data()).kind, MemoryKind::host);
    EXPECT_EQ(query_memory(neighbour->data()).kind, MemoryKind::host);
    const unsigned char *const end = segment_->data() + kBytes;
    if (!SegmentTable::instance().contains(end)) {  // another one of ours may lie there
        EXPECT_EQ(query_memory(end).kind, MemoryKind::host);
    }
}

TEST_F(SegmentTableTest, MemoryAboveAndBelowASegmentDoesNotCountAsIt) {
    unsigned char above[64];  // the stack lies above all mappings, the heap below
    std::vector<unsigned char> below(64);
    ASSERT_GT(above, segment_->data());
    Buffer device(MemoryKind::device, 64);
    ASSERT_EQ(copy_any(above, device.data(), 64), Status::ok);
    ASSERT_EQ(copy_any(below.data(), device.data(), 64), Status::ok);
    EXPECT_EQ(query_memory(segment_->data()).kind, MemoryKind::host);
}

TEST_F(SegmentTableTest, BothSidesOfASegmentArePinnedEachForItself) {
    const char *why = nullptr;
    const auto attached = Segment::attach(getpid(), segment_->fd(), kBytes, &why);
    ASSERT_TRUE(attached) << why;
    expect_copies(1);
    EXPECT_EQ(query_memory(attached->data()).kind, MemoryKind::host);
    Buffer device(MemoryKind::device, 4096);
    ASSERT_EQ(copy_any(device.data(), attached->data() + 8192, 4096), Status::ok);
    EXPECT_EQ(device.check(0, 4096, 1, 0), "");
    EXPECT_EQ(query_memory(attached->data()).kind, MemoryKind::pinned);
}

TEST_F(SegmentTableTest, IsUnlockedBeforeItIsUnmappedInAnyThread) {
    expect_copies(1);
    unsigned char *address = segment_->data();
    std::thread([&] {
        // No context is current in this thread; what it maps at the same place must be taken for
        // what it is, not for the pages that were pinned there.
        segment_.reset();
        EXPECT_EQ(current_context(), nullptr);
    }).join();
    EXPECT_TRUE(await_background());
    EXPECT_EQ(query_memory(address).kind, MemoryKind::host);
    segment_ = Segment::create("gpushm-test", kBytes);
    expect_copies(2);
    EXPECT_EQ(query_memory(segment_->data()).kind, MemoryKind::pinned);
}

TEST_F(SegmentTableTest, CanBeTurnedOff) {
    SegmentTable::instance().set_pinning_enabled(false);
    expect_copies(1);
    EXPECT_EQ(query_memory(segment_->data()).kind, MemoryKind::host);
    SegmentTable::instance().set_pinning_enabled(true);
    expect_copies(2);
    EXPECT_EQ(query_memory(segment_->data()).kind, MemoryKind::pinned);
}

TEST_F(SegmentTableTest, IsRegisteredOnceInItsLife) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    reset_calls();
    expect_copies(1);
    expect_copies(2);
    EXPECT_EQ(calls("cuMemHostRegister"), 1u);
    EXPECT_EQ(calls("cuMemHostUnregister"), 0u);
    segment_.reset();
    EXPECT_TRUE(await_background_calls("cuMemHostUnregister", 1));
}

/** In another context it might go while copies of that one use it. */
TEST_F(SegmentTableTest, IsPinnedInNoOtherContextThanTheOneThatCopies) {
    SKIP_UNLESS_SIMULATED();
    const CudaDriver *driver = CudaDriver::get();
    CUcontext context = nullptr;
    ASSERT_EQ(driver->ctx_get_current(&context), CUDA_SUCCESS);
    const auto is_pinned = [&] {
        return SegmentTable::instance().ensure_pinned(segment_->data(), context,
                                                      driver->context_id(context));
    };
    set_simulation("SIMCUDA_FAIL", "cuCtxPushCurrent:1:2");
    EXPECT_FALSE(is_pinned());
    set_simulation("SIMCUDA_FAIL", "");
    EXPECT_EQ(query_memory(segment_->data()).kind, MemoryKind::host);
    EXPECT_TRUE(is_pinned()) << "what the driver does not do once it may do the next time";
}

/** The driver waits for the work of the GPU when it unlocks memory; who closes a segment does not.
 */
TEST_F(SegmentTableTest, NobodyWaitsUntilItIsUnlocked) {
    SKIP_UNLESS_SIMULATED();
    expect_copies(1);
    ASSERT_TRUE(await_background()) << "it unmaps segments of other tests";
    const size_t mapped = mappings_named("gpushm-test");
    const BusyGpu gpu(500000);
    reset_calls();
    segment_.reset();
    EXPECT_EQ(Segment::create("gpushm-test", kBytes).has_value(), true) << "nor for another one";
    EXPECT_EQ(mappings_named("gpushm-test"), mapped) << "it is locked still";
    EXPECT_TRUE(gpu.is_busy());
    gpu.others_are_fast();
    EXPECT_TRUE(await_background_calls("cuMemHostUnregister", 1));
    EXPECT_LT(mappings_named("gpushm-test"), mapped);
    EXPECT_FALSE(gpu.is_busy()) << "shows nothing";
}

TEST_F(SegmentTableTest, UntouchedSegmentMakesNoDriverCall) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    reset_calls();
    segment_.reset();
    segment_ = Segment::create("gpushm-test", kBytes);
    segment_.reset();
    EXPECT_EQ(calls_of_all(), 0u);
}

FreshProcess refused_pinning("refused_pinning", [] {
    if (enter_primary_context(0) == nullptr) {
        return 5;
    }
    set_simulation("SIMCUDA_MAX_PINNED_BYTES", "4096");
    const LogCapture log;
    const auto first = Segment::create("gpushm-test", kBytes);
    const auto second = Segment::create("gpushm-test", kBytes);
    Buffer device(MemoryKind::device, 4096);
    for (uint64_t i = 0; i < 10; ++i) {
        unsigned char *shared = (i % 2 ? first : second)->data();
        device.fill(i);
        if (copy_any(shared, device.data(), 4096) != Status::ok ||
            pattern_mismatch(shared, 4096, i) != 4096) {
            return 1;
        }
        fill_pattern(shared, 4096, i + 100);
        if (copy_any(device.data(), shared, 4096) != Status::ok ||
            device.check(0, 4096, i + 100, 0) != "") {
            return 2;
        }
    }
    if (calls("cuMemHostRegister") != 2) {
        return 3;
    }
    return log.count("cannot page-lock") == 1 && log.count("ulimit -l") == 1 ? 0 : 4;
});

TEST_F(SegmentTableTest, RefusedPinningIsOneLineAndRightData) {
    if (!simulated()) {
        GTEST_SKIP() << "limits pinned memory";
    }
    EXPECT_EQ(refused_pinning.run(), 0);
}

}  // namespace
}  // namespace gpushm
