// SPDX-License-Identifier: BSD-3-Clause
// With hooks in the driver, query_memory() remembers, and is never wrong for it.
#include "core/copy/copy_engine.hpp"
#include "core/copy/copy_pieces.hpp"
#include "core/copy/reduction.hpp"
#include "core/cuda/stream_captures.hpp"
#include "core/hooks/driver_hooks.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/memory/known_host_pages.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"
#include "core/pinning/host_registration_cache.hpp"
#include "core/pinning/segment_table.hpp"
#include "core/reclaim/deferred_free.hpp"
#include "core/reclaim/kernel_preload.hpp"
#include "core/reclaim/quiescence.hpp"
#include "uct_gpushm/abi/abi.hpp"

#include "test/gtest/uct_gpushm/abi/component.hpp"
#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/core/hooks/hooks_support.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

class HooksTest : public HookedTest {
protected:
    void SetUp() override {
        HookedTest::SetUp();
        freed().clear();
    }

    /** Calls of the driver that another query of the address makes. */
    unsigned long calls_for(const void *address) {
        reset_calls();
        query_memory(address);
        return calls_of_all();
    }

    CUresult attribute(void *data, CUpointer_attribute which, const void *address) {
        return cuda_function<CUresult (*)(void *, CUpointer_attribute, CUdeviceptr)>(
            "cuPointerGetAttribute")(data, which, reinterpret_cast<CUdeviceptr>(address));
    }
};

TEST_F(HooksTest, WhatWasSeenIsAnsweredWithoutTheDriver) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    for (const MemoryKind kind : kAllKinds) {
        const Buffer buffer(kind, 10000);
        const MemoryInfo asked = query_memory(buffer.data() + 17);
        EXPECT_EQ(asked.kind, kind);
        EXPECT_EQ(calls_for(buffer.data() + 17), 0u) << memory_kind_name(kind);
        if (kind == MemoryKind::host) {
            continue;
        }
        EXPECT_EQ(calls_for(buffer.data()), 0u) << memory_kind_name(kind);
        EXPECT_EQ(calls_for(buffer.data() + 9999), 0u) << memory_kind_name(kind);
        const MemoryInfo again = query_memory(buffer.data() + 5000);
        EXPECT_EQ(again.kind, kind);
        EXPECT_EQ(again.base, buffer.data());
        EXPECT_EQ(again.length, asked.length);
        EXPECT_EQ(again.buffer_id, asked.buffer_id);
        EXPECT_EQ(again.context, asked.context);
        EXPECT_EQ(again.ipc_capable, asked.ipc_capable);
    }
}

TEST_F(HooksTest, FreedMemoryIsForgottenAndReportedOnce) {
    for (const MemoryKind kind : {MemoryKind::pinned, MemoryKind::device, MemoryKind::managed}) {
        unsigned char *address = nullptr;
        MemoryInfo info;
        {
            const Buffer buffer(kind, 8192);
            address = buffer.data();
            info = query_memory(address);
            freed().clear();
        }
        ASSERT_EQ(freed().size(), 1u) << memory_kind_name(kind);
        EXPECT_EQ(freed()[0].base, address);
        EXPECT_EQ(freed()[0].buffer_id, info.buffer_id);
        // A dead pointer, as that of an empty message may be, says nothing of what will be there.
        EXPECT_EQ(query_memory(address).kind, MemoryKind::host) << memory_kind_name(kind);
        const Buffer again(kind, 8192);
        EXPECT_EQ(query_memory(again.data()).kind, kind);
    }
}

TEST_F(HooksTest, MemoryThatNobodySawIsNotReported) {
    { const Buffer buffer(MemoryKind::device, 4096); }
    EXPECT_TRUE(freed().empty());
}

/** The driver refuses a copy that leaves page-locked memory in which it begins. */
TEST_F(HooksTest, TheApplicationsCopiesMayLeaveWhatGpushmHasLocked) {
    constexpr size_t kLocked = 1 << 20;
    constexpr size_t kBytes = 4 * kLocked;
    const Buffer device(MemoryKind::device, kBytes);
    Buffer host(MemoryKind::host, kBytes);
    unsigned char *const part = host.data() + kLocked;
    HostRegistrationCache &pins = HostRegistrationCache::instance();
    pins.enable(kBytes);
    HostRegistrationCache::Hold hold;
    for (int use = 0; use < 2; ++use) {
        hold = pins.acquire(query_memory(part), part, kLocked, context_, 1);
    }
    ASSERT_NE(hold, nullptr) << "not locked";
    const auto to_gpu =
        cuda_function<CUresult (*)(CUdeviceptr, const void *, size_t)>("cuMemcpyHtoD_v2");
    const auto from_gpu =
        cuda_function<CUresult (*)(void *, CUdeviceptr, size_t)>("cuMemcpyDtoH_v2");
    const auto any_async =
        cuda_function<CUresult (*)(CUdeviceptr, CUdeviceptr, size_t, CUstream)>("cuMemcpyAsync");
    const CUdeviceptr memory = device_pointer(device.data());
    uint64_t seed = 0;
    for (const size_t begin : {size_t{0}, kLocked, kLocked + 4096, 2 * kLocked - 1}) {
        const size_t length = kBytes - begin;
        host.fill(++seed);
        ASSERT_EQ(to_gpu(memory, host.data() + begin, length), CUDA_SUCCESS) << begin;
        std::vector<unsigned char> sent(host.data() + begin, host.data() + kBytes);
        EXPECT_EQ(std::vector<unsigned char>(read(device, length)), sent);
        host.fill(++seed);
        ASSERT_EQ(from_gpu(host.data() + begin, memory, length), CUDA_SUCCESS) << begin;
        EXPECT_EQ(memcmp(host.data() + begin, sent.data(), length), 0);
        host.fill(++seed);
        ASSERT_EQ(any_async(memory, device_pointer(host.data() + begin), length, nullptr),
                  CUDA_SUCCESS);
        ASSERT_EQ(cuda_.stream_synchronize(nullptr), CUDA_SUCCESS);
        EXPECT_EQ(memcmp(read(device, length).data(), host.data() + begin, length), 0);
    }
    hold = nullptr;
    pins.invalidate(host.data(), kBytes);
    EXPECT_EQ(pins.length_of_one_copy(part, kBytes), kBytes);
    pins.enable(0);
}

/** As of pageable memory: the source may be overwritten when the call returns, what came to the
 * host is there. */
TEST_F(HooksTest, TheApplicationDoesNotSeeThatItsMemoryIsLocked) {
    SKIP_UNLESS_SIMULATED();
    constexpr size_t kBytes = 1 << 20;
    const Buffer device(MemoryKind::device, kBytes);
    Buffer host(MemoryKind::host, kBytes);
    HostRegistrationCache &pins = HostRegistrationCache::instance();
    pins.enable(kBytes);
    HostRegistrationCache::Hold hold;
    for (int use = 0; use < 2; ++use) {
        hold = pins.acquire(query_memory(host.data()), host.data(), kBytes, context_, 1);
    }
    ASSERT_NE(hold, nullptr) << "not locked";
    using AnyAsync = CUresult (*)(CUdeviceptr, CUdeviceptr, size_t, CUstream);
    const auto to_gpu = cuda_function<CUresult (*)(CUdeviceptr, const void *, size_t, CUstream)>(
        "cuMemcpyHtoDAsync_v2");
    const auto from_gpu =
        cuda_function<CUresult (*)(void *, CUdeviceptr, size_t, CUstream)>("cuMemcpyDtoHAsync_v2");
    const auto any = cuda_function<AnyAsync>("cuMemcpyAsync");
    const auto begin_capture =
        cuda_function<CUresult (*)(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
    const auto end_capture = cuda_function<CUresult (*)(CUstream, CUgraph *)>("cuStreamEndCapture");
    CUstream made = nullptr;
    ASSERT_EQ(cuda_.stream_create(&made, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    const CUdeviceptr memory = device_pointer(device.data());
    const CUdeviceptr locked = device_pointer(host.data());
    set_simulation("SIMCUDA_DELAY_US", "50000");
    uint64_t seed = 0;
    for (const CUstream stream : {made, CUstream(nullptr)}) {
        for (const bool typed : {true, false}) {
            host.fill(++seed);
            EXPECT_EQ(typed ? to_gpu(memory, host.data(), kBytes, stream)
                            : any(memory, locked, kBytes, stream),
                      CUDA_SUCCESS);
            host.fill(1000);
            EXPECT_EQ(typed ? from_gpu(host.data(), memory, kBytes, stream)
                            : any(locked, memory, kBytes, stream),
                      CUDA_SUCCESS);
            EXPECT_EQ(pattern_mismatch(host.data(), kBytes, seed), kBytes) << typed;
        }
    }
    CUgraph graph = nullptr;
    ASSERT_EQ(begin_capture(made, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    EXPECT_EQ(to_gpu(memory, host.data(), kBytes, made), CUDA_SUCCESS);
    EXPECT_EQ(end_capture(made, &graph), CUDA_SUCCESS)
        << "a copy that is captured is not waited for";
    CopyEngine engine;
    CopyTicket ticket;
    EXPECT_EQ(engine.start({device.data(), host.data(), kBytes, query_memory(device.data()),
                            CopyDirection::to_gpu},
                           &ticket),
              Status::in_progress);
    engine.progress();
    EXPECT_EQ(engine.poll(&ticket), Status::in_progress) << "our own is not waited for";
    EXPECT_EQ(engine.wait(&ticket), Status::ok);
    set_simulation("SIMCUDA_DELAY_US", "5");
    cuda_.stream_destroy(made);
    hold = nullptr;
    pins.invalidate(host.data(), kBytes);
    pins.enable(0);
}

TEST_F(HooksTest, TheApplicationMayPageLockWhatGpushmHasLocked) {
    constexpr size_t kBytes = 1 << 20;
    const Buffer buffer(MemoryKind::host, kBytes);
    HostRegistrationCache &pins = HostRegistrationCache::instance();
    pins.enable(kBytes);
    const auto acquire = [&] {
        return pins.acquire(query_memory(buffer.data()), buffer.data(), kBytes, context_, 1);
    };
    acquire();
    ASSERT_NE(acquire(), nullptr) << "not locked";
    ASSERT_EQ(query_memory(buffer.data()).kind, MemoryKind::pinned);
    const CudaDriver *driver = CudaDriver::get();
    EXPECT_EQ(driver->mem_host_register(buffer.data(), kBytes, 0), CUDA_SUCCESS);
    EXPECT_NE(acquire(), nullptr) << "page-locked by the application";
    EXPECT_EQ(driver->mem_host_unregister(buffer.data()), CUDA_SUCCESS)
        << "it is the application's";
    EXPECT_EQ(query_memory(buffer.data()).kind, MemoryKind::host);
    pins.enable(0);
}

/** The address becomes memory of another kind 10^4 times, by each pair of allocators. */
TEST_F(HooksTest, AnAddressThatChangesItsKindIsNeverTakenForWhatItWas) {
    constexpr MemoryKind kKinds[] = {MemoryKind::device, MemoryKind::managed};
    const void *last = nullptr;
    size_t reused = 0;
    for (int round = 0; round < 10000; ++round) {
        const MemoryKind kind = kKinds[(round / 2 + round) % 2];
        const Buffer buffer(kind, 4096 + round % 7);
        reused += buffer.data() == last;
        last = buffer.data();
        const MemoryInfo info = query_memory(buffer.data() + round % 4096);
        ASSERT_EQ(info.kind, kind) << round;
        ASSERT_EQ(info.base, buffer.data()) << round;
        unsigned long long id = 0;
        ASSERT_EQ(attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, buffer.data()), CUDA_SUCCESS);
        ASSERT_EQ(info.buffer_id, id) << round;
        ASSERT_EQ(query_memory(buffer.data()).buffer_id, id) << round;
    }
    if (simulated()) {
        EXPECT_GT(reused, 1000u) << "shows nothing";
    }
}

TEST_F(HooksTest, HostMemoryAtAnAddressOfTheGpuAndBack) {
    constexpr size_t kBytes = size_t{1} << 21;
    size_t changes = 0;
    for (int round = 0; round < 200; ++round) {
        void *place = nullptr;
        {
            const Buffer buffer(round % 2 == 0 ? MemoryKind::device : MemoryKind::managed, kBytes);
            place = buffer.data();
            ASSERT_TRUE(query_memory(place).needs_gpu());
        }
        void *host = mmap(place, kBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (host == MAP_FAILED) {
            continue;
        }
        for (size_t offset = 0; offset < kBytes; offset += 65536) {
            ASSERT_EQ(query_memory(static_cast<char *>(host) + offset).kind, MemoryKind::host);
        }
        ASSERT_EQ(munmap(host, kBytes), 0);
        const Buffer buffer(MemoryKind::device, kBytes);
        ASSERT_EQ(query_memory(buffer.data()).kind, MemoryKind::device);
        if (buffer.data() == host) {
            ++changes;
            for (size_t offset = 0; offset < kBytes; offset += 65536) {
                ASSERT_EQ(query_memory(buffer.data() + offset).kind, MemoryKind::device);
            }
        }
    }
    if (simulated()) {
        EXPECT_GT(changes, 0u);
    }
}

TEST_F(HooksTest, RegistrationChangesWhatHostMemoryIs) {
    const Buffer buffer(MemoryKind::host, 3 * 4096);
    for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(query_memory(buffer.data()).kind, MemoryKind::host);
        ASSERT_EQ(cuda_.mem_host_register(buffer.data(), 3 * 4096, 0), CUDA_SUCCESS);
        EXPECT_EQ(query_memory(buffer.data()).kind, MemoryKind::pinned);
        EXPECT_EQ(query_memory(buffer.data() + 3 * 4096 - 1).kind, MemoryKind::pinned);
        ASSERT_EQ(cuda_.mem_host_unregister(buffer.data()), CUDA_SUCCESS);
    }
    EXPECT_EQ(query_memory(buffer.data()).kind, MemoryKind::host);
}

TEST_F(HooksTest, TheRuntimesWayToTheDriverIsWatchedToo) {
    using GetProcAddress = CUresult (*)(const char *, void **, int, cuuint64_t);
    const auto get = cuda_function<GetProcAddress>("cuGetProcAddress");
    void *free_function = nullptr;
    ASSERT_EQ(get("cuMemFree", &free_function, 11040, 0), CUDA_SUCCESS);
    CUdeviceptr address = 0;
    ASSERT_EQ(cuda_.mem_alloc(&address, 4096), CUDA_SUCCESS);
    query_memory(reinterpret_cast<void *>(address));
    ASSERT_EQ(reinterpret_cast<CUresult (*)(CUdeviceptr)>(free_function)(address), CUDA_SUCCESS);
    EXPECT_EQ(freed().size(), 1u);
    EXPECT_EQ(query_memory(reinterpret_cast<void *>(address)).kind, MemoryKind::host);
}

TEST_F(HooksTest, PoolMemoryIsAskedForEachTime) {
    const auto allocate =
        cuda_function<CUresult (*)(CUdeviceptr *, size_t, CUstream)>("cuMemAllocAsync");
    const auto release = cuda_function<CUresult (*)(CUdeviceptr, CUstream)>("cuMemFreeAsync");
    CUdeviceptr address = 0;
    ASSERT_EQ(allocate(&address, 4096, nullptr), CUDA_SUCCESS);
    const void *pointer = reinterpret_cast<void *>(address);
    EXPECT_EQ(query_memory(pointer).kind, MemoryKind::device);
    if (simulated()) {
        EXPECT_EQ(calls_for(pointer), 1u);
    }
    ASSERT_EQ(release(address, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cuda_.stream_synchronize(nullptr), CUDA_SUCCESS);
    EXPECT_TRUE(freed().empty());
    for (int round = 0; round < 100; ++round) {
        ASSERT_EQ(allocate(&address, 4096, nullptr), CUDA_SUCCESS);
        unsigned long long id = 0;
        ASSERT_EQ(attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, reinterpret_cast<void *>(address)),
                  CUDA_SUCCESS);
        ASSERT_EQ(query_memory(reinterpret_cast<void *>(address)).buffer_id, id) << round;
        ASSERT_EQ(release(address, nullptr), CUDA_SUCCESS);
    }
}

TEST_F(HooksTest, MappedMemoryIsForgottenWithItsMapping) {
    if (!Buffer::has_exportable()) {
        GTEST_SKIP() << "no cuMemCreate";
    }
    for (int round = 0; round < 10; ++round) {
        unsigned char *address = nullptr;
        {
            const Buffer buffer(Buffer::Allocator::exportable, 4096);
            address = buffer.data();
            const MemoryInfo info = query_memory(address);
            EXPECT_EQ(info.kind, MemoryKind::device);
            EXPECT_TRUE(info.exportable_by_fd);
            if (simulated()) {
                EXPECT_EQ(calls_for(address + info.length - 1), 0u);
            }
            unsigned long long id = 0;
            ASSERT_EQ(attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address), CUDA_SUCCESS);
            EXPECT_EQ(query_memory(address).buffer_id, id);
            freed().clear();
        }
        ASSERT_EQ(freed().size(), 1u);
        EXPECT_EQ(freed()[0].base, address);
        EXPECT_EQ(query_memory(address).kind, MemoryKind::host);
    }
}

TEST_F(HooksTest, TheEndOfAContextEndsItsMemory) {
    const CUcontext other = make_context();
    std::unique_ptr<Buffer> buffer;
    {
        const CurrentContext current(&cuda_, other);
        buffer = std::make_unique<Buffer>(MemoryKind::device, 8192);
    }
    const unsigned char *address = buffer->data();
    EXPECT_EQ(query_memory(address).context, other);
    const uint64_t epoch = context_epoch();
    destroy_context(other);
    buffer->forget();
    EXPECT_NE(context_epoch(), epoch);
    EXPECT_EQ(freed().size(), 1u);
    EXPECT_EQ(query_memory(address).kind, MemoryKind::host);
}

/** A look whether memory is still ours, and the driver's call that frees it, are two steps. */
TEST_F(HooksTest, NoContextEndsInTheMidstOfATaskInTheBackground) {
    if (!quiescence_is_known()) {
        GTEST_SKIP() << "the driver is older than that of CUDA 12.5";
    }
    const CUcontext other = make_context();
    std::atomic<bool> began{false};
    std::atomic<bool> may_end{false};
    std::atomic<bool> destroyed{false};
    defer_free(other, cuda_.context_id(other), [&] {
        began = true;
        while (!may_end) {
            std::this_thread::yield();
        }
        EXPECT_FALSE(destroyed);
    });
    std::thread waiter([&] {
        while (!began) {
            run_deferred_frees();
        }
    });
    while (!began) {
        std::this_thread::yield();
    }
    std::thread destroyer([&] {
        destroy_context(other);
        destroyed = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(destroyed);
    may_end = true;
    destroyer.join();
    waiter.join();
    EXPECT_TRUE(destroyed);
}

TEST_F(HooksTest, AResetOfTheDeviceEndsEverything) {
    int count = 0;
    cuda_.device_get_count(&count);
    if (count < 2) {
        GTEST_SKIP() << "one device only";
    }
    for (const char *reset : {"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2"}) {
        CUcontext other = nullptr, popped = nullptr;
        ASSERT_EQ(cuda_.device_primary_ctx_retain(&other, 1), CUDA_SUCCESS);
        cuda_.ctx_push_current(other);
        Buffer device(MemoryKind::device, 8192);
        Buffer managed(MemoryKind::managed, 8192);
        cuda_.ctx_pop_current(&popped);
        const void *addresses[] = {device.data(), managed.data()};
        EXPECT_TRUE(query_memory(addresses[0]).needs_gpu());
        EXPECT_TRUE(query_memory(addresses[1]).needs_gpu());
        const uint64_t epoch = context_epoch();
        ASSERT_EQ(cuda_function<CUresult (*)(CUdevice)>(reset)(1), CUDA_SUCCESS);
        device.forget();
        managed.forget();
        EXPECT_NE(context_epoch(), epoch);
        EXPECT_EQ(query_memory(addresses[0]).kind, MemoryKind::host);
        EXPECT_EQ(query_memory(addresses[1]).kind, MemoryKind::host);
        cuda_.device_primary_ctx_release(1);
    }
}

/** Nobody has asked for the copies since; their events ended with the context. */
TEST_F(HooksTest, CopiesEndWithTheirContext) {
    if (!simulated()) {
        GTEST_SKIP() << "needs a slow GPU";
    }
    const LogCapture log;
    const Buffer host(MemoryKind::pinned, 4096);
    CopyEngine engine;
    const CUcontext other = make_context();
    cuda_.ctx_push_current(other);
    auto there = std::make_unique<Buffer>(MemoryKind::device, 4096);
    CUcontext popped = nullptr;
    cuda_.ctx_pop_current(&popped);
    const MemoryInfo info = query_memory(there->data());
    CopyTicket tickets[4];  // two run, two are collected
    set_simulation("SIMCUDA_DELAY_US", "3000");
    for (CopyTicket &ticket : tickets) {
        ASSERT_EQ(
            engine.start({there->data(), host.data(), 64, info, CopyDirection::to_gpu}, &ticket),
            Status::in_progress);
    }
    set_simulation("SIMCUDA_DELAY_US", "5");
    destroy_context(other);
    there->forget();
    reset_calls();
    EXPECT_EQ(engine.progress(), 3u) << "batches";
    for (CopyTicket &ticket : tickets) {
        EXPECT_EQ(engine.poll(&ticket), Status::gpu_error);
    }
    EXPECT_TRUE(engine.idle());
    EXPECT_EQ(calls("cuEventQuery") + calls("cuStreamSynchronize") + calls("cuCtxPushCurrent"), 0u);
    EXPECT_EQ(log.count("GPU copies failed"), 1u) << "a line for the user";
}

/** One question for each end of a context, whichever it is. */
TEST_F(HooksTest, CopiesOfAContextThatLivesOutliveOthers) {
    if (!simulated()) {
        GTEST_SKIP() << "needs a slow GPU";
    }
    const Buffer host(MemoryKind::pinned, 4096);
    const Buffer device(MemoryKind::device, 4096);
    const MemoryInfo info = query_memory(device.data());
    CopyEngine engine;
    const CUcontext near = engine.context_near(device_identity(0));
    CopyTicket ticket;
    set_simulation("SIMCUDA_DELAY_US", "20000");
    ASSERT_EQ(engine.start({device.data(), host.data(), 64, info, CopyDirection::to_gpu}, &ticket),
              Status::in_progress);
    set_simulation("SIMCUDA_DELAY_US", "5");
    destroy_context(make_context());
    reset_calls();
    engine.progress();
    engine.progress();
    EXPECT_EQ(calls("cuCtxGetId"), 1u);
    EXPECT_EQ(engine.context_near(device_identity(0)), near);
    EXPECT_EQ(engine.context_near(device_identity(0)), near);
    EXPECT_EQ(calls("cuCtxGetId"), 2u);
    EXPECT_EQ(engine.wait(&ticket), Status::ok);
}

TEST_F(HooksTest, AContextThatLivesKeepsTheEpoch) {
    const uint64_t epoch = context_epoch();
    const Buffer buffer(MemoryKind::device, 4096);
    query_memory(buffer.data());
    EXPECT_EQ(context_epoch(), epoch);
}

TEST_F(HooksTest, ThreadsAllocateAskAndFree) {
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 4; ++thread) {
        threads.emplace_back([this, thread] {
            cuda_.ctx_push_current(context_);
            for (unsigned round = 0; round < 500; ++round) {
                const MemoryKind kind = kAllKinds[(thread + round) % 4];
                const Buffer buffer(kind, 5000);
                for (const size_t offset : {0, 4999}) {
                    const MemoryInfo info = query_memory(buffer.data() + offset);
                    ASSERT_EQ(info.kind, kind) << thread << " " << round;
                    if (kind != MemoryKind::host) {
                        ASSERT_EQ(info.base, buffer.data()) << thread << " " << round;
                    }
                }
            }
            CUcontext popped;
            cuda_.ctx_pop_current(&popped);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

bool refuse_free_host(void *function, void *hook, const char *name, void **original) {
    return strcmp(name, "cuMemFreeHost") != 0 &&
           abi::patch_function(function, hook, name, original);
}

FreshProcess refused("refused", [] {
    if (!abi_test::register_test_component() || install_driver_hooks(refuse_free_host, nullptr) ||
        driver_hooks_installed() || enter_primary_context(0) == nullptr) {
        return 1;
    }
    const Buffer buffer(MemoryKind::device, 4096);
    if (query_memory(buffer.data()).kind != MemoryKind::device) {
        return 2;
    }
    if (simulated()) {
        reset_calls();
        query_memory(buffer.data());
        return calls("cuPointerGetAttributes") == 1 ? 0 : 3;
    }
    return 0;
});

TEST(HooksProcess, WithoutAllHooksTheDriverIsAskedEachTime) {
    EXPECT_EQ(refused.run(), 0);
}

/** As before CUDA 12.0. */
FreshProcess no_context_ids("no-context-ids", [] {
    const CudaDriver &cuda = *CudaDriver::get();
    const_cast<CudaDriver &>(cuda).ctx_get_id = nullptr;
    CHECK(install_all_hooks());
    const CUcontext first = enter_primary_context(0);
    CHECK(first != nullptr);
    const unsigned long long first_id = cuda.context_id(first);
    const CUcontext other = make_context();
    const unsigned long long other_id = cuda.context_id(other);
    CHECK(cuda_function<CUresult (*)(CUdevice)>("cuDevicePrimaryCtxReset_v2")(0) == CUDA_SUCCESS);
    CHECK(cuda.context_is_alive(other, other_id));
    const CUcontext second = enter_primary_context(0);
    CHECK(second == first);  // a new one with the handle of the old one
    CHECK(!cuda.context_is_alive(first, first_id));
    CHECK(cuda.context_is_alive(second, cuda.context_id(second)));
    CHECK(CurrentContext(&cuda, first, first_id).result() == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    destroy_context(other);
    CHECK(!cuda.context_is_alive(other, other_id));
    const unsigned long long second_id = cuda.context_id(second);
    CUcontext retained = nullptr;
    CHECK(cuda.device_primary_ctx_retain(&retained, 0) == CUDA_SUCCESS);
    CHECK(cuda.device_primary_ctx_release(0) == CUDA_SUCCESS);  // somebody else has it still
    CHECK(cuda.context_is_alive(second, second_id));
    return 0;
});

TEST(HooksProcess, ContextsAreToldApartWhereTheDriverDoesNot) {
    EXPECT_EQ(no_context_ids.run(), 0);
}

/** Where UCX itself watches the memory. */
FreshProcess only_contexts("only-contexts", [] {
    const CudaDriver &cuda = *CudaDriver::get();
    CHECK(abi_test::register_test_component());
    CUcontext context = enter_primary_context(0);
    CHECK(context != nullptr);
    CHECK(watch_contexts(abi::patch_function) && !driver_hooks_installed());
    const Buffer host(MemoryKind::pinned, 4096);
    const CUcontext other = make_context();
    cuda.ctx_push_current(other);
    Buffer there(MemoryKind::device, 4096);
    cuda.ctx_pop_current(&context);
    CopyEngine engine;
    CopyTicket tickets[3];
    const CopyJob job = {there.data(), host.data(), 64, query_memory(there.data()),
                         CopyDirection::to_gpu};
    CHECK(engine.start(job, &tickets[0]) == Status::in_progress &&
          engine.wait(&tickets[0]) == Status::ok);
    reset_calls();
    CHECK(engine.start(job, &tickets[0]) == Status::in_progress &&
          engine.wait(&tickets[0]) == Status::ok);
    CHECK(calls("cuCtxGetId") == 0);  // nothing has ended
    set_simulation("SIMCUDA_DELAY_US", "3000");
    for (CopyTicket &ticket : tickets) {
        CHECK(engine.start(job, &ticket) == Status::in_progress);
    }
    set_simulation("SIMCUDA_DELAY_US", "5");
    destroy_context(other);
    there.forget();
    reset_calls();
    engine.progress();
    for (CopyTicket &ticket : tickets) {
        CHECK(engine.poll(&ticket) == Status::gpu_error);
    }
    CHECK(calls("cuCtxGetId") == 1 && calls("cuEventQuery") + calls("cuStreamSynchronize") == 0);
    return 0;
});

TEST(HooksProcess, CopiesEndWithTheirContextWhereContextsAloneAreWatched) {
    SKIP_UNLESS_SIMULATED();
#if !defined(__x86_64__)
    GTEST_SKIP() << "not every libucm can";
#endif
    EXPECT_EQ(only_contexts.run(), 0);
}

/** What they read is page-locked in a context that another thread ends meanwhile. */
FreshProcess read_to_the_end("kernels-read-to-the-end", [] {
    const CudaDriver &cuda = *CudaDriver::get();
    CHECK(install_all_hooks());
    const CUcontext context = enter_primary_context(0);
    CHECK(context != nullptr);
    CHECK(load_kernels(context));
    constexpr size_t kCount = 1000;
    const Buffer to(MemoryKind::device, 64 * kCount);
    Buffer from(MemoryKind::device, 64 * kCount);
    from.fill(1);
    std::vector<CopyPiece> pieces;  // of which there is a list
    for (size_t i = 0; i < kCount; ++i) {
        pieces.push_back({to.data() + 64 * i, from.data() + 64 * i, 16 + i % 7});
    }
    HostBlock operand(4 * kCount);
    memset(operand.address(), 0, 4 * kCount);
    set_simulation("SIMCUDA_KERNEL_START_US", "3000");
    const std::function<bool()> works[] = {
        [&] { return copy_pieces(pieces) == Status::ok; },
        [&] { return copy_pieces_within(query_memory(to.data()), pieces) == Status::ok; },
        [&] {
            return reduce_on_gpu(ReductionOperation::sum, ElementType::uint32, to.data(), to.data(),
                                 operand.address(), kCount) == GpuReduction::done;
        }};
    for (const auto &work : works) {
        const CUcontext other = make_context();
        SegmentTable::instance().ensure_pinned(operand.address(), other, cuda.context_id(other));
        reset_calls();
        std::thread ends([&] {
            while (calls("cuLaunchKernel") == 0) {
            }
            destroy_context(other);
        });
        const bool done = work();
        ends.join();
        CHECK(done && calls("cuLaunchKernel") == 1);
    }
    return 0;
});

TEST(HooksProcess, KernelsReadToTheEndWhatIsLockedInAnotherContext) {
    SKIP_UNLESS_SIMULATED();
#if !defined(__x86_64__)
    GTEST_SKIP() << "not every libucm can";
#endif
    if (!KernelCodes::possible()) {
        GTEST_SKIP() << "no kernels";
    }
    EXPECT_EQ(read_to_the_end.run(), 0);
}

/** A primary context that only gpushm uses gets no kernels, which would take turns with the
 * application's in another context; one that the application makes does. */
FreshProcess primary_context("primary-context", [] {
    const CudaDriver &cuda = *CudaDriver::get();
    if (!install_all_hooks() || cuda.init(0) != CUDA_SUCCESS) {
        return 1;
    }
    preload_kernels_everywhere();
    const auto has_kernels = [&cuda](CUcontext context) {
        return KernelCodes::instance().find(context, cuda.context_id(context)) != nullptr;
    };
    const CUcontext own = make_context();
    MemoryInfo of_a_pool;
    of_a_pool.kind = MemoryKind::device;
    {
        CopyEngine engine;
        const CUcontext primary = engine.context_of(of_a_pool);
        if (primary == nullptr || primary == own || has_kernels(primary)) {
            return 2;
        }
        preload_kernels_everywhere();  // another worker
        if (has_kernels(primary)) {
            return 3;
        }
    }
    for (const bool in_use : {false, true}) {
        CopyEngine engine;
        if (in_use) {
            engine.context_of(of_a_pool);
        }
        CUcontext primary = nullptr;
        if (cuda.device_primary_ctx_retain(&primary, 0) != CUDA_SUCCESS || !has_kernels(primary)) {
            return 4;
        }
        cuda.device_primary_ctx_release(0);
    }
    destroy_context(own);
    return 0;
});

TEST(HooksProcess, GpushmMakesNoContextForItsKernels) {
#if !defined(__x86_64__)
    GTEST_SKIP() << "not every libucm can";
#endif
    if (!KernelCodes::possible()) {
        GTEST_SKIP() << "no kernels";
    }
    EXPECT_EQ(primary_context.run(), 0);
}

}  // namespace
}  // namespace gpushm
