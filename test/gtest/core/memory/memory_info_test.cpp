// SPDX-License-Identifier: BSD-3-Clause
// query_memory.
#include "test/gtest/core/gpu_support.hpp"

#include "core/copy/copy_any.hpp"
#include "core/memory/known_host_pages.hpp"

#include <optional>
#include <thread>

namespace gpushm {
namespace {

using namespace test;

class MemoryInfoTest : public GpuTest {};

TEST_F(MemoryInfoTest, TellsEveryKindAtItsFirstAndLastByte) {
    for (const MemoryKind kind : kAllKinds) {
        const Buffer buffer(kind, 8192);
        for (const size_t offset : {0, 1, 4097, 8191}) {
            const MemoryInfo info = query_memory(buffer.data() + offset);
            EXPECT_EQ(info.kind, kind) << memory_kind_name(kind) << " + " << offset;
            EXPECT_EQ(info.needs_gpu(), kind == MemoryKind::device || kind == MemoryKind::managed);
            if (info.needs_gpu()) {
                EXPECT_EQ(info.device, 0);
                EXPECT_NE(info.buffer_id, 0u);
            }
            if (kind == MemoryKind::device) {
                EXPECT_EQ(info.context, context_);
            }
        }
    }
}

TEST_F(MemoryInfoTest, WhatIsNoMemoryOfTheDriverIsHost) {
    int on_stack = 0;
    EXPECT_EQ(query_memory(nullptr).kind, MemoryKind::host);
    EXPECT_EQ(query_memory(&on_stack).kind, MemoryKind::host);
    EXPECT_EQ(query_memory(reinterpret_cast<void *>(~uintptr_t{0})).kind, MemoryKind::host);
    EXPECT_EQ(query_memory(reinterpret_cast<void *>(&query_memory)).kind, MemoryKind::host);
}

TEST_F(MemoryInfoTest, AllocationsHaveDifferentIds) {
    const Buffer first(MemoryKind::device, 4096);
    const Buffer second(MemoryKind::device, 4096);
    EXPECT_NE(query_memory(first.data()).buffer_id, query_memory(second.data()).buffer_id);
    EXPECT_EQ(query_memory(first.data()).buffer_id, query_memory(first.data() + 100).buffer_id);
}

TEST_F(MemoryInfoTest, FreedMemoryIsNotTakenForWhatItWas) {
    std::optional<Buffer> buffer(std::in_place, MemoryKind::device, size_t{1} << 22);
    unsigned char *address = buffer->data();
    const auto old_id = query_memory(address).buffer_id;
    buffer.reset();
    EXPECT_EQ(query_memory(address).kind, MemoryKind::host);
    const Buffer again(MemoryKind::device, size_t{1} << 22);
    EXPECT_NE(query_memory(again.data()).buffer_id, old_id) << "also at the same address";
}

TEST_F(MemoryInfoTest, MemoryOfAnotherDeviceAndContext) {
    int count = 0;
    cuda_.device_get_count(&count);
    if (count < 2) {
        GTEST_SKIP() << "one device only";
    }
    CUcontext other, popped;
    ASSERT_EQ(cuda_.device_primary_ctx_retain(&other, 1), CUDA_SUCCESS);
    cuda_.ctx_push_current(other);
    {
        const Buffer buffer(MemoryKind::device, 4096);
        cuda_.ctx_pop_current(&popped);
        const MemoryInfo info = query_memory(buffer.data());
        EXPECT_EQ(info.device, 1);
        EXPECT_EQ(info.context, other);
        cuda_.ctx_push_current(other);
    }
    cuda_.ctx_pop_current(&popped);
    cuda_.device_primary_ctx_release(1);
}

TEST_F(MemoryInfoTest, ThreadWithoutAContextGetsTheSameAnswers) {
    for (const MemoryKind kind : kAllKinds) {
        const Buffer buffer(kind, 4096);
        std::thread([&] { EXPECT_EQ(query_memory(buffer.data()).kind, kind); }).join();
    }
}

TEST_F(MemoryInfoTest, SyncMemopsIsSetOnEveryDeviceAllocation) {
    const Buffer buffer(MemoryKind::device, 4096);
    query_memory(buffer.data() + 64);
    unsigned enabled = 0;
    ASSERT_EQ(cuda_function<CUresult (*)(void *, CUpointer_attribute, CUdeviceptr)>(
                  "cuPointerGetAttribute")(&enabled, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                           reinterpret_cast<CUdeviceptr>(buffer.data())),
              CUDA_SUCCESS);
    EXPECT_EQ(enabled, 1u);
}

TEST_F(MemoryInfoTest, SyncMemopsIsSetOncePerAllocationAndAQueryIsOneCall) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    for (const MemoryKind kind : kAllKinds) {
        for (int life = 0; life < 3; ++life) {
            const Buffer buffer(kind, 4096);
            const bool on_gpu = kind == MemoryKind::device || kind == MemoryKind::managed;
            reset_calls();
            query_memory(buffer.data());
            EXPECT_EQ(calls("cuPointerSetAttribute"), on_gpu ? 1u : 0u) << memory_kind_name(kind);
            reset_calls();
            query_memory(buffer.data());
            query_memory(buffer.data() + 4095);
            EXPECT_EQ(calls("cuPointerGetAttributes"), 2u);
            EXPECT_EQ(calls_of_all(), 2u);
        }
    }
}

TEST_F(MemoryInfoTest, AllocationIsToldFromAnyByte) {
    for (const MemoryKind kind : {MemoryKind::pinned, MemoryKind::device, MemoryKind::managed}) {
        const Buffer buffer(kind, 10000);
        for (const size_t offset : {0, 5000, 9999}) {
            const MemoryInfo info = query_memory(buffer.data() + offset);
            EXPECT_EQ(info.base, buffer.data()) << memory_kind_name(kind);
            EXPECT_GE(info.length, 10000u);
            EXPECT_EQ(info.ipc_capable, kind == MemoryKind::device) << memory_kind_name(kind);
            EXPECT_FALSE(info.exportable_by_fd);
        }
    }
    int on_stack = 0;
    EXPECT_EQ(query_memory(&on_stack).base, nullptr);
    EXPECT_EQ(query_memory(&on_stack).length, 0u);
    EXPECT_FALSE(query_memory(&on_stack).ipc_capable);
}

TEST_F(MemoryInfoTest, DriverThatDoesNotAnswerNeverMakesHostMemoryOfDeviceMemory) {
    if (!simulated()) {
        GTEST_SKIP() << "makes calls fail";
    }
    const LogCapture log;
    const Buffer device(MemoryKind::device, 4096);
    set_simulation("SIMCUDA_FAIL", "cuPointerGetAttributes:1:700");
    const MemoryInfo info = query_memory(device.data());
    EXPECT_TRUE(info.needs_gpu()) << "the CPU must not touch it";
    EXPECT_EQ(info.base, device.data());
    EXPECT_EQ(info.length, 1u);
    const Buffer host(MemoryKind::host, 4096);
    set_simulation("SIMCUDA_FAIL", "cuPointerGetAttributes:1:700");
    EXPECT_EQ(query_memory(host.data()).kind, MemoryKind::host) << "host memory needs no driver";
}

FreshProcess before_init("before_init", [] {
    int on_stack = 0;
    const CudaDriver *cuda = CudaDriver::get();
    if (query_memory(&on_stack).kind != MemoryKind::host) {
        return 1;
    }
    char copy[64] = {};
    char original[64] = "host memory";
    if (copy_any(copy, original, sizeof(copy)) != Status::ok || copy[3] != 't') {
        return 2;
    }
    CUcontext context = nullptr;
    return cuda->ctx_get_current(&context) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 3;
});

TEST(MemoryInfoProcess, NothingIsInitialisedForHostMemory) {
    EXPECT_EQ(before_init.run(), 0);
}

FreshProcess asked_once("host-page-asked-once", [] {
    KnownHostPages::instance().trust();  // nothing is unmapped here
    alignas(4096) static unsigned char page[4096];
    for (size_t i = 0; i < 100; ++i) {
        if (query_memory(page + i).kind != MemoryKind::host) {
            return 1;
        }
    }
    if (!simulated()) {
        return 0;  // does not count
    }
    const uint64_t asked = calls("cuPointerGetAttributes");
    KnownHostPages::instance().forget(page, 1);
    query_memory(page);
    return asked == 1 && calls("cuPointerGetAttributes") == 2 ? 0 : 2;
});

TEST(MemoryInfoProcess, BeforeInitialisationTheDriverIsAskedOncePerHostPage) {
    EXPECT_EQ(asked_once.run(), 0);
}

/** Of ranges of every size, which are looked through in different ways, what lies within and
 * nothing else. */
FreshProcess pages_forgotten("host-pages-forgotten", [] {
    constexpr uintptr_t kPage = 4096;
    KnownHostPages &pages = KnownHostPages::instance();
    pages.trust();
    constexpr uintptr_t kBegin = uintptr_t{1} << 40;
    for (size_t count = 1; count <= size_t{1} << 16; count *= 2) {
        const auto page = [](uintptr_t number) {
            return reinterpret_cast<void *>(kBegin + number * kPage);
        };
        const auto is_kept = [&pages, page](uintptr_t number) {
            return pages.contains(page(number));
        };
        pages.add(page(0));
        pages.add(page(count + 1));
        if (!is_kept(0) || !is_kept(count + 1)) {
            return 1;
        }
        pages.forget(page(1), count * kPage);
        if (!is_kept(0) || !is_kept(count + 1)) {
            return 2;
        }
        pages.forget(page(0), 1);
        pages.forget(page(2), count * kPage);
        if (is_kept(0) || is_kept(count + 1)) {
            return 3;
        }
    }
    return 0;
});

TEST(MemoryInfoProcess, KnownHostPagesOfARangeAreForgotten) {
    EXPECT_EQ(pages_forgotten.run(), 0);
}

FreshProcess no_context("no_context", [] {
    const CudaDriver *cuda = CudaDriver::get();
    if (cuda->init(0) != CUDA_SUCCESS) {
        return 1;
    }
    char copy[64] = {};
    char original[64] = "host memory";
    if (query_memory(copy).kind != MemoryKind::host ||
        copy_any(copy, original, sizeof(copy)) != Status::ok || copy[3] != 't') {
        return 2;
    }
    const auto get_state =
        cuda_function<CUresult (*)(CUdevice, unsigned *, int *)>("cuDevicePrimaryCtxGetState");
    int count = 0;
    cuda->device_get_count(&count);
    for (CUdevice device = 0; device < count; ++device) {
        unsigned flags;
        int active = 1;
        if (get_state(device, &flags, &active) != CUDA_SUCCESS || active != 0) {
            return 3;
        }
    }
    return current_context() == nullptr ? 0 : 4;
});

TEST(MemoryInfoProcess, NoContextIsMadeWhereThereIsNone) {
    EXPECT_EQ(no_context.run(), 0);
}

}  // namespace
}  // namespace gpushm
