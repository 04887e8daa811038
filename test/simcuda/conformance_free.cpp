// SPDX-License-Identifier: BSD-3-Clause
// Calls that free memory wait for the work of its context, and others wait for them.
#include "kernel_support.hpp"

#include <functional>
#include <memory>
#include <sys/mman.h>

namespace {

using FreeTest = DriverTest;

constexpr std::size_t kBytes = 1 << 20;

// A call in a thread of its own.
class Thread {
public:
    Thread(CUcontext context, std::function<CUresult()> call)
        : thread_([this, context, call] {
              cu().cuCtxSetCurrent(context);
              result_ = call();
              ended_ = true;
          }) {}
    ~Thread() {
        thread_.join();
        EXPECT_CU(result_);
    }
    Thread(const Thread &) = delete;

    // Gives it the time to end, if it can.
    bool ends() const {
        for (int i = 0; i < 20 && !ended_; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return ended_;
    }

private:
    CUresult result_ = CUDA_SUCCESS;
    std::atomic<bool> ended_{false};
    std::thread thread_;  // the last one, for it uses the others
};

class Pages {
public:
    Pages()
        : data_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    }
    ~Pages() { munmap(data_, kBytes); }
    Pages(const Pages &) = delete;

    void *data() const { return data_; }

private:
    void *const data_;
};

struct Memory {
    Memory() {
        EXPECT_CU(cu().cuMemAlloc(&device, kBytes));
        EXPECT_CU(cu().cuMemHostAlloc(&pinned, kBytes, 0));
        EXPECT_CU(cu().cuMemHostRegister(pages.data(), kBytes, CU_MEMHOSTREGISTER_PORTABLE));
    }

    Pages pages;
    CUdeviceptr device = 0;
    void *pinned = nullptr;
};

// Each test frees one of them while work of the context waits, and finds out whether `call` can be
// done meanwhile.
struct Free {
    const char *name;
    CUresult (*call)(Memory &memory);
};

const Free kFrees[] = {
    {"cuMemFree", [](Memory &memory) { return cu().cuMemFree(memory.device); }},
    {"cuMemFreeHost", [](Memory &memory) { return cu().cuMemFreeHost(memory.pinned); }},
    {"cuMemHostUnregister",
     [](Memory &memory) { return cu().cuMemHostUnregister(memory.pages.data()); }},
};

// Whether `call` ends while memory is being freed.
bool ends_beside(const Free &free, CUcontext context, const std::function<CUresult()> &call) {
    Memory memory;
    const CUdeviceptr device = memory.device;
    Stream busy;
    Gate gate;
    gate.close(busy);
    bool ended = false;
    {
        Thread freeing(context, [&] { return free.call(memory); });
        EXPECT_FALSE(freeing.ends()) << free.name << " waits for the work of the context";
        Thread calling(context, call);
        ended = calling.ends();
        EXPECT_FALSE(gate.opened());
        gate.open();
    }
    EXPECT_CU(cu().cuCtxSynchronize());
    if (free.call != kFrees[0].call) {
        EXPECT_CU(cu().cuMemFree(device));
    }
    if (free.call != kFrees[1].call) {
        EXPECT_CU(cu().cuMemFreeHost(memory.pinned));
    }
    if (free.call != kFrees[2].call) {
        EXPECT_CU(cu().cuMemHostUnregister(memory.pages.data()));
    }
    return ended;
}

TEST_F(FreeTest, while_memory_is_freed_the_context_gets_no_work) {
    DeviceMemory device(kBytes);
    PinnedMemory pinned(kBytes);
    LoadedKernel spin;
    PinnedMemory done(Bytes(4, 1));
    Pages pages;
    Stream stream;
    Event event;
    CUstream made = nullptr;
    const std::function<CUresult()> calls[] = {
        [&] { return spin.launch(stream, done.address()); },
        [&] { return cu().cuMemcpyAsync(pinned.address(), device.address(), 64, stream); },
        [&] { return cu().cuMemcpyAsync(device.address(), pinned.address(), 64, stream); },
        [&] { return cu().cuMemcpyAsync(device.address(), device.address() + 64, 64, stream); },
        [&] { return cu().cuEventRecord(event, stream); },
        [&] { return cu().cuMemHostRegister(pages.data(), kBytes, CU_MEMHOSTREGISTER_PORTABLE); },
        [&] { return cu().cuStreamCreate(&made, CU_STREAM_NON_BLOCKING); },
    };
    ASSERT_CU(calls[0]());  // the first launch of a kernel does more
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    for (const Free &free : kFrees) {
        for (std::size_t i = 0; i < std::size(calls); ++i) {
            EXPECT_FALSE(ends_beside(free, context_, calls[i])) << free.name << ", call " << i;
        }
        EXPECT_CU(cu().cuMemHostUnregister(pages.data()));
        EXPECT_CU(cu().cuStreamDestroy(made));
    }
}

TEST_F(FreeTest, while_memory_is_freed_streams_can_be_asked_and_write_words) {
    DeviceMemory device(kBytes);
    Stream stream;
    Event event;
    unsigned type = 0;
    ASSERT_CU(cu().cuEventRecord(event, stream));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    const std::function<CUresult()> calls[] = {
        [&] { return cu().cuStreamWriteValue32(stream, device.address(), 1, 0); },
        [&] { return cu().cuEventQuery(event); },
        [&] {
            const CUresult state = cu().cuStreamQuery(stream);
            return state == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : state;
        },
        [&] {
            return cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                              device.address());
        },
    };
    for (const Free &free : kFrees) {
        for (std::size_t i = 0; i < std::size(calls); ++i) {
            EXPECT_TRUE(ends_beside(free, context_, calls[i])) << free.name << ", call " << i;
        }
    }
}

TEST_F(FreeTest, does_not_wait_for_other_contexts) {
    CUcontext other = nullptr;
    ASSERT_CU(cu().create_context(&other, 0, 0));
    {
        Memory memory;
        ASSERT_CU(cu().cuCtxSetCurrent(context_));
        Stream busy;
        Gate gate;
        gate.close(busy);
        {
            Thread freeing(other, [&] {
                CUresult result = CUDA_SUCCESS;
                for (const Free &free : kFrees) {
                    const CUresult freed = free.call(memory);
                    result = result == CUDA_SUCCESS ? freed : result;
                }
                return result;
            });
            EXPECT_TRUE(freeing.ends());
            EXPECT_FALSE(gate.opened());
            gate.open();
        }
    }
    EXPECT_CU(cu().cuCtxDestroy(other));
    EXPECT_CU(cu().cuCtxSetCurrent(context_));
}

// Virtual memory management and pools.
TEST_F(FreeTest, unmapping_and_pools_wait_for_nobody) {
    CUmemAllocationProp property = {};
    property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    std::size_t bytes = 0;
    ASSERT_CU(
        cu().cuMemGetAllocationGranularity(&bytes, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    ASSERT_CU(cu().cuMemCreate(&handle, bytes, &property, 0));
    ASSERT_CU(cu().cuMemAddressReserve(&address, bytes, 0, 0, 0));
    ASSERT_CU(cu().cuMemMap(address, bytes, 0, handle, 0));
    Stream stream;
    CUdeviceptr of_pool = 0;
    ASSERT_CU(cu().cuMemAllocAsync(&of_pool, kBytes, stream));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    Stream busy;
    Gate gate;
    gate.close(busy);
    {
        Thread freeing(context_, [&] {
            EXPECT_CU(cu().cuMemFreeAsync(of_pool, stream));
            EXPECT_CU(cu().cuMemUnmap(address, bytes));
            EXPECT_CU(cu().cuMemRelease(handle));
            return cu().cuMemAddressFree(address, bytes);
        });
        EXPECT_TRUE(freeing.ends());
        EXPECT_FALSE(gate.opened());
        gate.open();
    }
    EXPECT_CU(cu().cuCtxSynchronize());
}

}  // namespace
