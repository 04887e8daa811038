// SPDX-License-Identifier: BSD-3-Clause
// What frees memory of a context waits until that has nothing to do, and disturbs no capture.
#include "core/hooks/driver_hooks.hpp"
#include "core/pinning/host_registration_cache.hpp"
#include "core/reclaim/deferred_free.hpp"
#include "core/reclaim/quiescence.hpp"

#include "test/gtest/core/hooks/hooks_support.hpp"

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace gpushm {
namespace {

using namespace test;

/** A stream of the current context that waits for the CPU. */
class HeldStream {
public:
    HeldStream() {
        EXPECT_EQ(CudaDriver::get()->stream_create(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        const auto wait = cuda_function<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned)>(
            "cuStreamWaitValue32_v2");
        EXPECT_EQ(wait(stream_, device_pointer(word_.data()), 1, CU_STREAM_WAIT_VALUE_GEQ),
                  CUDA_SUCCESS);
    }
    ~HeldStream() {
        release();
        CudaDriver::get()->stream_destroy(stream_);
    }
    HeldStream(const HeldStream &) = delete;
    HeldStream &operator=(const HeldStream &) = delete;

    void release() {
        __atomic_store_n(reinterpret_cast<uint32_t *>(word_.data()), 1, __ATOMIC_RELEASE);
        EXPECT_EQ(CudaDriver::get()->stream_synchronize(stream_), CUDA_SUCCESS);
    }

private:
    Buffer word_{MemoryKind::pinned, 4096};
    CUstream stream_ = nullptr;
};

class CapturedStream {
public:
    CapturedStream() {
        EXPECT_EQ(CudaDriver::get()->stream_create(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        const auto begin =
            cuda_function<CUresult (*)(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
        EXPECT_EQ(begin(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    }
    ~CapturedStream() { CudaDriver::get()->stream_destroy(stream_); }
    CapturedStream(const CapturedStream &) = delete;
    CapturedStream &operator=(const CapturedStream &) = delete;

    CUresult end() {
        CUgraph graph = nullptr;
        return cuda_function<CUresult (*)(CUstream, CUgraph *)>("cuStreamEndCapture")(stream_,
                                                                                      &graph);
    }

private:
    CUstream stream_ = nullptr;
};

class IdleTest : public HookedTest {
protected:
    void SetUp() override {
        HookedTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) {
            return;
        }
        if (CudaDriver::get()->ctx_record_event == nullptr) {
            GTEST_SKIP() << "the driver is older than that of CUDA 12.5";
        }
        ASSERT_TRUE(quiescence_is_known());
        CudaDriver::get()->ctx_get_current(&context_);
        id_ = CudaDriver::get()->context_id(context_);
    }

    /** Whether it happens while this thread does that, in time. */
    static bool happens(const std::function<bool()> &done, const std::function<void()> &meanwhile) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (!done() && std::chrono::steady_clock::now() < end) {
            meanwhile();
        }
        return done();
    }
    /** A busy machine may take a proof's time for nothing. */
    bool becomes_free() {
        bool free = false;
        return happens([&] { return free; }, [&] { free = is_quiescent(context_, id_); });
    }

    CUcontext context_ = nullptr;
    unsigned long long id_ = 0;
};

TEST_F(IdleTest, AContextIsFreeWhenNothingRunsInIt) {
    EXPECT_TRUE(becomes_free());
    HeldStream held;
    for (int i = 0; i < 100; ++i) {
        ASSERT_FALSE(is_quiescent(context_, id_));
    }
    held.release();
    EXPECT_TRUE(becomes_free());
}

TEST_F(IdleTest, ACaptureIsNotDisturbed) {
    CapturedStream captured;
    for (int i = 0; i < 10; ++i) {
        EXPECT_FALSE(is_quiescent(context_, id_));
    }
    {
        CapturedStream other;
        EXPECT_EQ(other.end(), CUDA_SUCCESS);
        EXPECT_EQ(other.end(), CUDA_ERROR_ILLEGAL_STATE) << "it has ended";
    }
    EXPECT_FALSE(is_quiescent(context_, id_));
    EXPECT_EQ(captured.end(), CUDA_SUCCESS);
    EXPECT_TRUE(becomes_free());
}

/** It ends no context, only a use of one. */
TEST_F(IdleTest, ACaptureOutlivesTheReleaseOfItsContext) {
    CapturedStream captured;
    CUcontext again = nullptr;
    ASSERT_EQ(cuda_.device_primary_ctx_retain(&again, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuda_.device_primary_ctx_release(0), CUDA_SUCCESS);
    EXPECT_FALSE(is_quiescent(context_, id_));
    EXPECT_EQ(captured.end(), CUDA_SUCCESS);
}

TEST_F(IdleTest, ACaptureEndsWithItsStream) {
    {
        const CapturedStream captured;
        EXPECT_FALSE(is_quiescent(context_, id_));
    }
    EXPECT_TRUE(becomes_free());
}

/** The driver would keep the question waiting, too. */
TEST_F(IdleTest, NobodyAsksWhileMemoryIsFreed) {
    const auto free = cuda_function<CUresult (*)(CUdeviceptr)>("cuMemFree_v2");
    CUdeviceptr memory = 0;
    ASSERT_EQ(cuda_.mem_alloc(&memory, 4096), CUDA_SUCCESS);
    HeldStream held;
    std::thread freeing([&] {
        const CurrentContext current(CudaDriver::get(), context_);
        EXPECT_EQ(free(memory), CUDA_SUCCESS);
    });
    EXPECT_TRUE(happens(memory_is_ending, std::this_thread::yield));
    for (int i = 0; i < 20; ++i) {
        EXPECT_FALSE(is_quiescent(context_, id_));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(memory_is_ending()) << "it waits";
    held.release();
    freeing.join();
    EXPECT_TRUE(becomes_free());
}

TEST_F(IdleTest, ACaptureThatFailsIsOver) {
    CapturedStream captured;
    EXPECT_FALSE(context_is_idle(context_, 0)) << "which invalidates it";
    EXPECT_EQ(captured.end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_TRUE(becomes_free());
    CapturedStream of_this_thread;
    std::thread([&] {
        const CurrentContext current(CudaDriver::get(), context_);
        EXPECT_EQ(of_this_thread.end(), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }).join();
    EXPECT_TRUE(becomes_free());
}

TEST_F(IdleTest, TasksWaitForTheirContextAndRunWhereMessagesAreAwaited) {
    HeldStream held;
    std::atomic<bool> done{false};
    std::thread::id by;
    defer_free(context_, id_, [&] {
        by = std::this_thread::get_id();
        done = true;
    });
    EXPECT_EQ(deferred_free_count(), 1u);
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    while (std::chrono::steady_clock::now() < until) {
        run_deferred_frees();
    }
    EXPECT_FALSE(done);
    held.release();
    EXPECT_TRUE(happens([&] { return done.load(); }, run_deferred_frees));
    EXPECT_EQ(by, std::this_thread::get_id());
    EXPECT_EQ(deferred_free_count(), 0u);
}

TEST_F(IdleTest, TasksRunWhenNobodyAwaitsMessages) {
    std::atomic<bool> done{false};
    {
        HeldStream held;
        defer_free(context_, id_, [&] { done = true; });
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        EXPECT_FALSE(done);
    }
    EXPECT_TRUE(happens([&] { return done.load(); }, std::this_thread::yield));
}

TEST_F(IdleTest, AContextAtWorkHoldsUpNoOther) {
    const CUcontext other = make_context();
    const unsigned long long other_id = CudaDriver::get()->context_id(other);
    HeldStream held;
    std::atomic<bool> done{false};
    std::atomic<bool> held_up{false};
    defer_free(context_, id_, [&] { held_up = true; });
    defer_free(other, other_id, [&] { done = true; });
    EXPECT_TRUE(happens([&] { return done.load(); }, run_deferred_frees));
    EXPECT_FALSE(held_up);
    held.release();
    EXPECT_TRUE(happens([&] { return held_up.load(); }, run_deferred_frees));
    destroy_context(other);
}

TEST_F(IdleTest, TasksOfAContextThatHasEndedRun) {
    const CUcontext other = make_context();
    const unsigned long long other_id = CudaDriver::get()->context_id(other);
    destroy_context(other);
    std::atomic<bool> done{false};
    defer_free(other, other_id, [&] { done = true; });
    EXPECT_TRUE(happens([&] { return done.load(); }, run_deferred_frees));
}

/** Memory that may be page-locked (HostRegistrationCache). */
class Pages {
public:
    static constexpr size_t kBytes = size_t{4} << 20;
    Pages()
        : data_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    }
    ~Pages() {
        HostRegistrationCache::instance().invalidate(data_, kBytes);
        munmap(data_, kBytes);
    }
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;

    bool are_locked() const { return HostRegistrationCache::instance().has_locked(data_, kBytes); }
    /** So often that it pays; whether they are locked then. */
    bool use(CUcontext context) const {
        for (int i = 0; i < 3; ++i) {
            HostRegistrationCache::instance().acquire(query_memory(data_), data_, kBytes, context,
                                                      1);
        }
        return are_locked();
    }

private:
    void *const data_;
};

TEST_F(IdleTest, NoMemoryIsUnlockedBesideWorkToMakeRoomForOther) {
    HostRegistrationCache::instance().enable(Pages::kBytes);
    {
        const Pages first;
        const Pages second;
        ASSERT_TRUE(first.use(context_));
        HeldStream held;
        EXPECT_FALSE(second.use(context_));
        EXPECT_TRUE(first.are_locked());
        held.release();
        EXPECT_TRUE(happens([&] { return second.use(context_); }, std::this_thread::yield));
        EXPECT_FALSE(first.are_locked());
    }
    HostRegistrationCache::instance().enable(0);
}

}  // namespace
}  // namespace gpushm
