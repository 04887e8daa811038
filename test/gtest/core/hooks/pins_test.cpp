// SPDX-License-Identifier: BSD-3-Clause
// With hooks in the driver, the application does not notice that gpushm has page-locked its memory,
// and nothing is taken for locked, or for allocated, that is not any more.
#include "core/hooks/driver_hooks.hpp"
#include "core/mapping/memory_export.hpp"
#include "core/memory/allocation_table.hpp"
#include "core/pinning/host_registration_cache.hpp"
#include "uct_gpushm/abi/abi.hpp"

#include "test/gtest/uct_gpushm/abi/component.hpp"
#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/core/hooks/hooks_support.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 1 << 20;
constexpr size_t kPitch = 1024;
constexpr size_t kWidth = 512;

class HookedPins : public HookedTest {
protected:
    void SetUp() override {
        HookedTest::SetUp();
        pins_.enable(16 * kBytes);
    }
    ~HookedPins() override {
        pins_.invalidate(host_.data(), 4 * kBytes);
        pins_.enable(0);
        if (simulated()) {
            set_simulation("SIMCUDA_DELAY_US", "5");
        }
    }
    HostRegistrationCache::Hold acquire(size_t offset, size_t length, CUcontext context) {
        const unsigned char *address = host_.data() + offset;
        return pins_.acquire(query_memory(address), address, length, context, 1);
    }
    bool lock(size_t offset, size_t length, CUcontext context) {
        acquire(offset, length, context);
        return acquire(offset, length, context) != nullptr;
    }
    /** Where another range has to go first: that waits until the context has no work, and is asked
     * for now and then. */
    bool lock_in_time(size_t offset, size_t length, CUcontext context) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        bool locked = lock(offset, length, context);
        while (!locked && std::chrono::steady_clock::now() < end) {
            std::this_thread::yield();
            locked = lock(offset, length, context);
        }
        return locked;
    }

    HostRegistrationCache &pins_ = HostRegistrationCache::instance();
    Buffer host_{MemoryKind::host, 4 * kBytes};
};

/** Else a copy of ours waits for the stream, as one of the application of memory that we have
 * locked. */
TEST_F(HookedPins, CopiesAreOwnUntilTheOutermostScopeEnds) {
    SKIP_UNLESS_SIMULATED();
    ASSERT_TRUE(lock(0, kBytes, context_));
    const Buffer device(MemoryKind::device, kBytes);
    const auto waits = [&] {
        reset_calls();
        EXPECT_EQ(CudaDriver::get()->memcpy_async(device_pointer(device.data()),
                                                  device_pointer(host_.data()), kBytes, nullptr),
                  CUDA_SUCCESS);
        return calls("cuStreamSynchronize");
    };
    EXPECT_EQ(waits(), 1u);
    const OwnCopies outer;
    EXPECT_EQ(waits(), 0u);
    { const OwnCopies inner; }
    EXPECT_EQ(waits(), 0u);
}

TEST_F(HookedPins, EndWithTheContextThatMadeThem) {
    const CUcontext other = make_context();
    ASSERT_TRUE(lock(0, kBytes, other));
    destroy_context(other);
    const HostRegistrationCache::Hold hold = acquire(0, kBytes, context_);
    EXPECT_TRUE(hold == nullptr || is_mapped_for_kernels(host_.data())) << "nothing has locked it";
    EXPECT_EQ(HostRegistrationCache::is_mapped_for_kernels(hold), hold != nullptr);
}

/** The driver unlocks memory without waiting for other contexts. */
TEST_F(HookedPins, AreKeptWhileTheApplicationCopiesInAnotherContext) {
    SKIP_UNLESS_SIMULATED();
    ASSERT_TRUE(lock(0, 2 * kBytes, context_));
    CUcontext second = nullptr;
    ASSERT_EQ(cuda_.device_primary_ctx_retain(&second, 1), CUDA_SUCCESS);
    const auto to_gpu =
        cuda_function<CUresult (*)(CUdeviceptr, const void *, size_t)>("cuMemcpyHtoD_v2");
    set_simulation("SIMCUDA_DELAY_US", "100000");
    std::atomic<bool> copies{false};
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread application([&] {
        CUdeviceptr memory = 0;
        cuda_.ctx_push_current(second);
        cuda_.mem_alloc(&memory, 2 * kBytes);
        reset_calls();
        copies = true;
        result = to_gpu(memory, host_.data(), 2 * kBytes);
        cuda_.mem_free(memory);
    });
    while (!copies || calls("cuMemcpyHtoD") == 0) {
        std::this_thread::yield();
    }
    acquire(kBytes, 2 * kBytes, context_);  // of both one range would be made
    application.join();
    EXPECT_EQ(result, CUDA_SUCCESS);
    set_simulation("SIMCUDA_DELAY_US", "5");
    EXPECT_TRUE(lock(kBytes, 2 * kBytes, context_)) << "afterwards it is";
    cuda_.device_primary_ctx_release(1);
}

/** As of pageable memory, and also where they leave what is locked. */
TEST_F(HookedPins, AreNotNoticedByCopiesOfRows) {
    SKIP_UNLESS_SIMULATED();
    const Buffer device(MemoryKind::device, kBytes);
    const auto flat =
        cuda_function<CUresult (*)(const CUDA_MEMCPY2D *, CUstream)>("cuMemcpy2DAsync_v2");
    CUDA_MEMCPY2D out = {};
    out.srcMemoryType = CU_MEMORYTYPE_HOST;
    out.srcHost = host_.data();
    out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    out.dstDevice = device_pointer(device.data());
    out.srcPitch = out.dstPitch = kPitch;
    out.WidthInBytes = kWidth;
    out.Height = kBytes / kPitch;
    CUDA_MEMCPY2D back = out;
    back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    back.srcDevice = out.dstDevice;
    back.dstMemoryType = CU_MEMORYTYPE_HOST;
    back.dstHost = host_.data();
    CUstream stream = nullptr;
    ASSERT_EQ(cuda_.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (const size_t locked : {kBytes, kBytes / 2}) {
        ASSERT_TRUE(lock(0, locked, context_));
        set_simulation("SIMCUDA_DELAY_US", "50000");
        memset(host_.data(), 1, kBytes);
        EXPECT_EQ(flat(&out, stream), CUDA_SUCCESS);
        memset(host_.data(), 2, kBytes);
        EXPECT_EQ(flat(&back, stream), CUDA_SUCCESS);
        for (const size_t row : {size_t{0}, kBytes / kPitch - 1}) {
            EXPECT_EQ(host_.data()[row * kPitch], 1)
                << "what was there when it was sent, row " << row;
            EXPECT_EQ(host_.data()[row * kPitch + kWidth], 2) << row;
        }
        set_simulation("SIMCUDA_DELAY_US", "5");
        pins_.invalidate(host_.data(), kBytes);
    }
    cuda_.stream_destroy(stream);
}

/** Of which a message uses a part all the while. */
TEST_F(HookedPins, AreNotUnlockedForCopiesOfRows) {
    SKIP_UNLESS_SIMULATED();
    const Buffer device(MemoryKind::device, kBytes);
    const auto flat =
        cuda_function<CUresult (*)(const CUDA_MEMCPY2D *, CUstream)>("cuMemcpy2DAsync_v2");
    ASSERT_TRUE(lock(0, kBytes / 2, context_));
    const HostRegistrationCache::Hold message = acquire(0, kBytes / 2, context_);
    // Its rows begin before what is locked ends, one of them in the midst of the row.
    CUDA_MEMCPY2D out = {};
    out.srcMemoryType = CU_MEMORYTYPE_HOST;
    out.srcHost = host_.data() + 100;
    out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    out.dstDevice = device_pointer(device.data());
    out.WidthInBytes = kPitch - 4;  // so far apart, too, where no pitch is said
    out.srcY = 3;
    out.Height = kBytes / kPitch - 4;
    host_.fill(7);
    ASSERT_EQ(flat(&out, nullptr), CUDA_SUCCESS);
    const unsigned char *first = host_.data() + 100 + out.srcY * out.WidthInBytes;
    EXPECT_EQ(memcmp(read(device, kBytes).data(), first, out.Height * out.WidthInBytes), 0);
    out.srcPitch = kPitch;
    ASSERT_EQ(flat(&out, nullptr), CUDA_SUCCESS);
    const std::vector<unsigned char> arrived = read(device, kBytes);
    for (size_t row = 0; row < out.Height; ++row) {
        const unsigned char *sent = host_.data() + 100 + (out.srcY + row) * kPitch;
        ASSERT_EQ(memcmp(arrived.data() + row * out.WidthInBytes, sent, out.WidthInBytes), 0)
            << row;
    }
    EXPECT_TRUE(pins_.has_locked(host_.data(), 1));
    EXPECT_NE(acquire(0, kBytes / 2, context_), nullptr);
    out.srcPitch = 5;
    EXPECT_EQ(flat(&out, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HookedPins, AreNotUnlockedForCopiesOfSlices) {
    SKIP_UNLESS_SIMULATED();
    const Buffer device(MemoryKind::device, kBytes);
    const auto copy =
        cuda_function<CUresult (*)(const CUDA_MEMCPY3D *, CUstream)>("cuMemcpy3DAsync_v2");
    ASSERT_TRUE(lock(0, kBytes / 2, context_));
    const HostRegistrationCache::Hold message = acquire(0, kBytes / 2, context_);
    // What is locked ends in the midst of a row of the third of four slices.
    CUDA_MEMCPY3D out = {};
    out.srcMemoryType = CU_MEMORYTYPE_HOST;
    out.srcHost = host_.data() + 100;
    out.srcPitch = kPitch;
    out.srcHeight = 200;
    out.srcY = 5;
    out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    out.dstDevice = device_pointer(device.data());
    out.dstPitch = kPitch;
    out.dstHeight = 180;
    out.dstZ = 1;
    out.WidthInBytes = kPitch - 4;
    out.Height = 170;
    out.Depth = 4;
    host_.fill(9);
    ASSERT_EQ(copy(&out, nullptr), CUDA_SUCCESS);
    const std::vector<unsigned char> arrived = read(device, kBytes);
    for (size_t row = 0; row < out.Depth * out.Height; ++row) {
        const size_t slice = row / out.Height;
        const unsigned char *sent =
            host_.data() + 100 + (slice * 200 + 5 + row % out.Height) * kPitch;
        const unsigned char *got = arrived.data() + ((slice + 1) * 180 + row % out.Height) * kPitch;
        ASSERT_EQ(memcmp(got, sent, out.WidthInBytes), 0) << row;
    }
    EXPECT_NE(acquire(0, kBytes / 2, context_), nullptr);
}

/** Which is the one of a program that was compiled so. */
TEST_F(HookedPins, AreNotNoticedByCopiesInTheDefaultStreamOfTheThread) {
    SKIP_UNLESS_SIMULATED();
    const Buffer device(MemoryKind::device, kBytes);
    const auto to_gpu = cuda_function<CUresult (*)(CUdeviceptr, const void *, size_t, CUstream)>(
        "cuMemcpyHtoDAsync_v2_ptsz");
    ASSERT_TRUE(lock(0, kBytes, context_));
    const std::vector<unsigned char> sent(host_.data(), host_.data() + kBytes);
    set_simulation("SIMCUDA_DELAY_US", "50000");
    EXPECT_EQ(to_gpu(device_pointer(device.data()), host_.data(), kBytes, nullptr), CUDA_SUCCESS);
    host_.fill(1000);
    set_simulation("SIMCUDA_DELAY_US", "5");
    EXPECT_EQ(cuda_.stream_synchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    EXPECT_EQ(read(device, kBytes), sent);
}

/** It was locked by another thread after the copy had looked, and before the driver did. */
TEST_F(HookedPins, AreKeptForACopyThatIsOlder) {
    const HostRegistrationCache::ApplicationCopy older(pins_, {{}, {host_.data(), kBytes}});
    ASSERT_TRUE(lock(0, kBytes, context_));
    EXPECT_EQ(acquire(kBytes / 2, kBytes, context_), nullptr) << "of both one range would be made";
    EXPECT_TRUE(pins_.has_locked(host_.data(), 1));
}

/** A kernel in the stream may wait for a message of this thread. */
TEST_F(HookedPins, DoNotMakeSmallCopiesWaitForTheStream) {
    SKIP_UNLESS_SIMULATED();
    constexpr size_t kSmall = 64 << 10;
    Buffer device(MemoryKind::device, 2 * kSmall);
    const auto to_gpu = cuda_function<CUresult (*)(CUdeviceptr, const void *, size_t, CUstream)>(
        "cuMemcpyHtoDAsync_v2");
    const auto any =
        cuda_function<CUresult (*)(CUdeviceptr, CUdeviceptr, size_t, CUstream)>("cuMemcpyAsync");
    CUstream stream = nullptr;
    ASSERT_EQ(cuda_.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_TRUE(lock(0, kBytes, context_));
    const std::vector<unsigned char> sent(host_.data(), host_.data() + 2 * kSmall);
    set_simulation("SIMCUDA_DELAY_US", "300000");
    EXPECT_EQ(to_gpu(device_pointer(device.data()), host_.data(), kSmall, stream), CUDA_SUCCESS);
    EXPECT_EQ(any(device_pointer(device.data() + kSmall), device_pointer(host_.data() + kSmall),
                  kSmall, stream),
              CUDA_SUCCESS);
    EXPECT_EQ(any(device_pointer(device.data()), device_pointer(host_.data() + kSmall), 0, stream),
              CUDA_SUCCESS);
    EXPECT_EQ(cuda_.stream_query(stream), CUDA_ERROR_NOT_READY);
    host_.fill(1000);
    set_simulation("SIMCUDA_DELAY_US", "5");
    EXPECT_EQ(cuda_.stream_synchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(read(device, 2 * kSmall), sent);
    cuda_.stream_destroy(stream);
}

/** Its copies find memory as it was when they were captured. */
TEST_F(HookedPins, AreKeptForGraphs) {
    SKIP_UNLESS_SIMULATED();
    Buffer device(MemoryKind::device, kBytes);
    const auto copy =
        cuda_function<CUresult (*)(CUdeviceptr, CUdeviceptr, size_t, CUstream)>("cuMemcpyAsync");
    const auto begin_capture =
        cuda_function<CUresult (*)(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
    const auto end_capture = cuda_function<CUresult (*)(CUstream, CUgraph *)>("cuStreamEndCapture");
    const auto instantiate =
        cuda_function<CUresult (*)(CUgraphExec *, CUgraph, unsigned long long)>(
            "cuGraphInstantiateWithFlags");
    const auto launch = cuda_function<CUresult (*)(CUgraphExec, CUstream)>("cuGraphLaunch");
    CUstream stream = nullptr;
    ASSERT_EQ(cuda_.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    pins_.enable(2 * kBytes);
    for (const bool to_gpu : {true, false}) {
        const unsigned char *source = to_gpu ? host_.data() : device.data();
        const unsigned char *destination = to_gpu ? device.data() : host_.data();
        ASSERT_TRUE(lock(0, kBytes, context_));
        ASSERT_EQ(begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
        EXPECT_EQ(copy(device_pointer(destination), device_pointer(source), 4096, stream),
                  CUDA_SUCCESS);
        CUgraph graph = nullptr;
        ASSERT_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
        for (const size_t other :
             {kBytes, 2 * kBytes, 3 * kBytes}) {  // there is room for one of them
            EXPECT_TRUE(lock_in_time(other, kBytes, context_)) << other;
        }
        EXPECT_FALSE(lock(kBytes / 2, kBytes, context_)) << "of both one range would be made";
        CUgraphExec ready = nullptr;
        ASSERT_EQ(instantiate(&ready, graph, 0), CUDA_SUCCESS);
        (to_gpu ? host_ : device).fill(3);
        (to_gpu ? device : host_).fill(4);
        EXPECT_EQ(launch(ready, stream), CUDA_SUCCESS);
        EXPECT_EQ(cuda_.stream_synchronize(stream), CUDA_SUCCESS);
        EXPECT_EQ((to_gpu ? device : host_).check(0, 4096, 3, 4), "");
        pins_.invalidate(host_.data(), 4 * kBytes);
        EXPECT_FALSE(pins_.has_locked(host_.data(), 1)) << "it is unmapped";
    }
    cuda_.stream_destroy(stream);
}

/** Without that nobody could tell later whether the lock has ended with its context. */
TEST_F(HookedPins, AreOfAContextThatIsKnown) {
    SKIP_UNLESS_SIMULATED();
    acquire(0, kBytes, context_);
    set_simulation("SIMCUDA_FAIL", "cuCtxGetId:1:999,cuCtxGetId:1:999");
    acquire(0, kBytes, context_);
    set_simulation("SIMCUDA_FAIL", "");
    pins_.invalidate(host_.data(), kBytes);
    EXPECT_EQ(query_memory(host_.data()).kind, MemoryKind::host);
}

/** cuMemFreeAsync takes memory of cuMemAlloc, too. */
TEST_F(HookedPins, MemoryThatIsFreedInAStreamIsForgotten) {
    const auto free_async = cuda_function<CUresult (*)(CUdeviceptr, CUstream)>("cuMemFreeAsync");
    CUdeviceptr memory = 0;
    ASSERT_EQ(cuda_.mem_alloc(&memory, 64 * kBytes), CUDA_SUCCESS);
    const MemoryInfo before = query_memory(reinterpret_cast<void *>(memory));
    if (free_async == nullptr || free_async(memory, nullptr) != CUDA_SUCCESS) {
        cuda_.mem_free(memory);
        GTEST_SKIP() << "this driver does not";
    }
    ASSERT_EQ(cuda_.stream_synchronize(nullptr), CUDA_SUCCESS);
    EXPECT_FALSE(still_allocated(make_buffer_key(before)));
    ASSERT_EQ(cuda_.mem_alloc(&memory, 64 * kBytes), CUDA_SUCCESS);
    EXPECT_NE(query_memory(reinterpret_cast<void *>(memory)).buffer_id, before.buffer_id);
    cuda_.mem_free(memory);
}

/** While another thread is in the table, that is. */
TEST_F(HookedPins, AForkedChildMayFreeMemory) {
    SKIP_UNLESS_SIMULATED();
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (int i = 0; i < 8; ++i) {  // more than a thread remembers
        buffers.push_back(std::make_unique<Buffer>(MemoryKind::device, 4096));
    }
    std::atomic<bool> stop{false};
    std::thread asks([&] {
        while (!stop) {
            for (const auto &buffer : buffers) {
                query_memory(buffer->data());
            }
        }
    });
    constexpr int kChildren = 20;
    const int ended_well = children_that_end_well(kChildren, [this] {
        cuda_.mem_free(0);
        return 0;
    });
    stop = true;
    asks.join();
    EXPECT_EQ(ended_well, kChildren) << "it waited for a lock of a thread that it has not";
}

/** Nothing has been forgotten yet. */
FreshProcess fork_with_known_memory("fork-with-known-memory", [] {
    CHECK(enter_primary_context(0) != nullptr && install_all_hooks());
    const Buffer buffer(MemoryKind::device, 4096);
    for (int look = 0; look < 2; ++look) {
        CHECK(query_memory(buffer.data()).kind == MemoryKind::device);
    }
    return children_that_end_well(
               1,
               [&] {
                   MemoryInfo known;
                   return AllocationTable::instance().find(buffer.data(), &known) ? 1 : 0;
               }) == 1
               ? 0
               : 1;
});

TEST(HooksProcess, AForkedChildDoesNotKnowMemoryOfItsParent) {
    SKIP_UNLESS_SIMULATED();
#if !defined(__x86_64__)
    GTEST_SKIP() << "not every libucm can";
#endif
    EXPECT_EQ(fork_with_known_memory.run(), 0);
}

/** Where UCX itself watches the memory. */
FreshProcess only_host_memory("only-host-memory", [] {
    const CudaDriver &cuda = *CudaDriver::get();
    const bool registered = abi_test::register_test_component();
    const CUcontext context = enter_primary_context(0);
    if (!registered || context == nullptr || host_memory_is_watched() ||
        !watch_host_memory(abi::patch_function) || !host_memory_is_watched() ||
        driver_hooks_installed()) {
        return 1;
    }
    Buffer host(MemoryKind::host, kBytes);
    const Buffer device(MemoryKind::device, kBytes);
    HostRegistrationCache::instance().enable(kBytes);
    HostRegistrationCache::Hold hold;
    for (int use = 0; use < 2; ++use) {
        hold = HostRegistrationCache::instance().acquire(query_memory(host.data()), host.data(),
                                                         kBytes / 2, context, 1);
    }
    if (hold == nullptr) {
        return 2;
    }
    set_simulation("SIMCUDA_DELAY_US", "50000");
    const auto to_gpu = cuda_function<CUresult (*)(CUdeviceptr, const void *, size_t, CUstream)>(
        "cuMemcpyHtoDAsync_v2");
    host.fill(1);
    if (to_gpu(device_pointer(device.data()), host.data(), kBytes, nullptr) != CUDA_SUCCESS) {
        return 3;
    }
    host.fill(2);
    set_simulation("SIMCUDA_DELAY_US", "5");
    if (cuda.stream_synchronize(nullptr) != CUDA_SUCCESS ||
        !device.check(0, kBytes, 1, 0).empty()) {
        return 4;
    }
    hold = nullptr;
    return cuda.mem_host_register(host.data(), kBytes, 0) == CUDA_SUCCESS ? 0 : 5;
});

TEST(HooksProcess, HostMemoryMayBeWatchedAlone) {
    SKIP_UNLESS_SIMULATED();
#if !defined(__x86_64__)
    GTEST_SKIP() << "not every libucm can";
#endif
    EXPECT_EQ(only_host_memory.run(), 0);
}

}  // namespace
}  // namespace gpushm
