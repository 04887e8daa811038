// SPDX-License-Identifier: BSD-3-Clause
// Hooks of the driver while allocations fail: the application's call is done all the same, and
// nothing is believed of what went away.
#include "core/base/no_throw.hpp"
#include "core/cuda/stream_captures.hpp"
#include "core/hooks/driver_hooks.hpp"
#include "core/memory/allocation_table.hpp"
#include "core/pinning/host_registration_cache.hpp"

#include "test/gtest/core/wrapped_calls.hpp"
#include "test/gtest/core/hooks/hooks_support.hpp"

#include <functional>

namespace gpushm {
namespace {

using namespace test;

class HooksMemory : public HookedTest {
protected:
    /** With each allocation of this thread failing once that `body` makes; `afterwards` none fails.
     */
    static void for_each_failing_allocation(
        const std::function<void()> &body, const std::function<void()> &afterwards = [] {}) {
        bool failed = true;
        for (unsigned n = 0; failed && !HasFailure(); ++n) {
            {
                const FailingHeap heap(n);
                body();
                failed = heap.has_failed();
            }
            afterwards();
        }
    }

    CUresult allocate(CUdeviceptr *address) const { return cuda_.mem_alloc(address, 4096); }
};

TEST_F(HooksMemory, WhatIsFreedIsForgotten) {
    SKIP_UNLESS_SIMULATED();
    for_each_failing_allocation([this] {
        CUdeviceptr address = 0;
        ASSERT_EQ(allocate(&address), CUDA_SUCCESS);
        const auto *pointer = reinterpret_cast<const void *>(address);
        EXPECT_EQ(query_memory(pointer).kind, MemoryKind::device);
        ASSERT_EQ(cuda_.mem_free(address), CUDA_SUCCESS);
        MemoryInfo info;
        EXPECT_FALSE(AllocationTable::instance().find(pointer, &info));
        EXPECT_EQ(query_memory(pointer).kind, MemoryKind::host);
    });
}

TEST_F(HooksMemory, ContextsEndWithTheirMemory) {
    SKIP_UNLESS_SIMULATED();
    for_each_failing_allocation([this] {
        const uint64_t epoch = context_epoch();
        const CUcontext other = make_context();
        ASSERT_NE(other, nullptr);
        ASSERT_EQ(cuda_.ctx_push_current(other), CUDA_SUCCESS);
        CUdeviceptr address = 0;
        CUcontext popped = nullptr;
        EXPECT_EQ(allocate(&address), CUDA_SUCCESS);
        EXPECT_EQ(cuda_.ctx_pop_current(&popped), CUDA_SUCCESS);
        const auto *pointer = reinterpret_cast<const void *>(address);
        EXPECT_EQ(query_memory(pointer).kind, MemoryKind::device);
        destroy_context(other);
        EXPECT_NE(context_epoch(), epoch);
        EXPECT_EQ(query_memory(pointer).kind, MemoryKind::host);
    });
}

TEST_F(HooksMemory, ACaptureIsDisturbedByNothing) {
    SKIP_UNLESS_SIMULATED();
    const auto begin =
        cuda_function<CUresult (*)(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
    const auto end = cuda_function<CUresult (*)(CUstream, CUgraph *)>("cuStreamEndCapture");
    for_each_failing_allocation([&] {
        CUstream stream = nullptr;
        CUgraph graph = nullptr;
        ASSERT_EQ(cuda_.stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        ASSERT_EQ(begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
        EXPECT_FALSE(CapturePause().none());
        EXPECT_EQ(end(stream, &graph), CUDA_SUCCESS);
        EXPECT_EQ(cuda_.stream_destroy(stream), CUDA_SUCCESS);
    });
}

/** They are read at once where that is possible, and later otherwise. */
TEST_F(HooksMemory, CopiesFromMemoryThatIsLockedArrive) {
    SKIP_UNLESS_SIMULATED();
    constexpr size_t kBytes = 64 << 10;
    HostRegistrationCache &pins = HostRegistrationCache::instance();
    pins.enable(16 * kBytes);
    Buffer host(MemoryKind::host, 4 * kBytes);
    Buffer device(MemoryKind::device, kBytes);
    const auto copy = cuda_function<CUresult (*)(CUdeviceptr, const void *, size_t, CUstream)>(
        "cuMemcpyHtoDAsync_v2");
    uint64_t seed = 0;
    host.fill(seed);
    for_each_failing_allocation(
        [&] {
            for (int i = 0; i < 2; ++i) {
                as_possible([&] {
                    pins.acquire(query_memory(host.data()), host.data(), 4 * kBytes, context_, 1);
                });
            }
            ASSERT_EQ(copy(device_pointer(device.data()), host.data(), kBytes, nullptr),
                      CUDA_SUCCESS);
            ASSERT_EQ(cuda_.stream_synchronize(nullptr), CUDA_SUCCESS);
        },
        [&] {
            EXPECT_EQ(device.check(0, kBytes, seed, seed), "");
            host.fill(++seed);
        });
    pins.invalidate(host.data(), 4 * kBytes);
    pins.enable(0);
}

}  // namespace
}  // namespace gpushm
