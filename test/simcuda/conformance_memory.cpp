// SPDX-License-Identifier: BSD-3-Clause
// Device, managed and pinned memory: allocation, release, registration, and who may touch it.
#include "child_process.hpp"
#include "test_support.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace {

using MemoryTest = DriverTest;

constexpr std::size_t kMiB = 1 << 20;

// Argument: what to do with device memory.
int touch_device_memory(const Arguments &arguments) {
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    CHILD_CHECK(start_cuda(0, &context));
    CHILD_CHECK(cu().cuMemAlloc(&address, 4 * kMiB) == CUDA_SUCCESS);
    auto *pointer = reinterpret_cast<volatile unsigned char *>(address + 4097);
    if (arguments.at(0) == "read") {
        const unsigned char found = *pointer;
        (void)found;
    } else {
        *pointer = 1;
    }
    return 0;
}
const ChildStepRegistration kTouchDeviceMemory("touch device memory", touch_device_memory);

bool faulted(const ChildResult &result) {
    return result.signal == SIGSEGV || result.signal == SIGBUS;
}

// Pages of the process, shared or private, unmapped at the end.
class Pages {
public:
    Pages(std::size_t bytes, int sharing)
        : bytes_(bytes),
          address_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0)) {
        std::memset(address_, 1, bytes);
    }
    ~Pages() { munmap(address_, bytes_); }
    Pages(const Pages &) = delete;

    unsigned char *data() const { return static_cast<unsigned char *>(address_); }

private:
    const std::size_t bytes_;
    void *const address_;
};

TEST(DeviceMemoryAccess, the_cpu_faults_when_it_reads) {
    EXPECT_TRUE(faulted(run_child("touch device memory", {"read"})));
}

TEST(DeviceMemoryAccess, the_cpu_faults_when_it_writes) {
    EXPECT_TRUE(faulted(run_child("touch device memory", {"write"})));
}

TEST_F(MemoryTest, system_calls_cannot_read_device_memory) {
    DeviceMemory memory(fresh_bytes(100));
    int pipe_ends[2];
    ASSERT_EQ(0, pipe(pipe_ends));
    EXPECT_EQ(-1, write(pipe_ends[1], reinterpret_cast<void *>(memory.address()), 100));
    EXPECT_EQ(EFAULT, errno);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

TEST_F(MemoryTest, device_memory_keeps_what_is_written) {
    for (std::size_t bytes : {std::size_t{1}, std::size_t{7}, std::size_t{4095}, 3 * kMiB + 5}) {
        const Bytes data = fresh_bytes(bytes);
        EXPECT_EQ(data, DeviceMemory(data).read()) << bytes;
    }
}

TEST_F(MemoryTest, allocations_do_not_share_bytes) {
    const Bytes first = fresh_bytes(1000);
    const Bytes second = fresh_bytes(1000);
    DeviceMemory one(first);
    DeviceMemory other(second);
    EXPECT_EQ(first, one.read());
    EXPECT_EQ(second, other.read());
}

TEST_F(MemoryTest, bad_sizes_are_refused) {
    CUdeviceptr address = 0;
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemAlloc(&address, 0));
    EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cu().cuMemAlloc(&address, std::size_t{1} << 46));
}

TEST_F(MemoryTest, only_the_begin_of_an_allocation_can_be_freed_and_only_once) {
    CUdeviceptr address = 0;
    ASSERT_CU(cu().cuMemAlloc(&address, 4 * kMiB));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemFree(address + 64));
    EXPECT_CU(cu().cuMemFree(address));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemFree(address));
    int on_stack = 0;
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemFree(address_of(&on_stack)));
}

TEST_F(MemoryTest, GetAddressRange_finds_the_allocation_of_any_address_in_it) {
    DeviceMemory memory(4 * kMiB);
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    EXPECT_CU(cu().cuMemGetAddressRange(&base, &bytes, memory.address() + 3 * kMiB + 1));
    EXPECT_EQ(memory.address(), base);
    EXPECT_EQ(4 * kMiB, bytes);
    EXPECT_CU(cu().cuMemGetAddressRange(nullptr, &bytes, memory.address()));
    EXPECT_CU(cu().cuMemGetAddressRange(&base, nullptr, memory.address()));
}

TEST_F(MemoryTest, GetInfo_sees_an_allocation) {
    std::size_t free_before = 0;
    std::size_t free_after = 0;
    std::size_t total = 0;
    ASSERT_CU(cu().cuMemGetInfo(&free_before, &total));
    DeviceMemory memory(64 * kMiB);
    ASSERT_CU(cu().cuMemGetInfo(&free_after, &total));
    EXPECT_LE(free_after + 64 * kMiB, free_before);
    EXPECT_LE(free_before, total);
}

TEST_F(MemoryTest, AllocPitch_pads_rows) {
    CUdeviceptr address = 0;
    std::size_t pitch = 0;
    ASSERT_CU(cu().cuMemAllocPitch(&address, &pitch, 1000, 10, 4));
    EXPECT_GE(pitch, 1000u);
    EXPECT_EQ(0u, pitch % 16);
    const Bytes data = fresh_bytes(pitch * 10);
    Bytes read(data.size());
    EXPECT_CU(cu().cuMemcpyHtoD(address, data.data(), data.size()));
    EXPECT_CU(cu().cuMemcpyDtoH(read.data(), address, read.size()));
    EXPECT_EQ(data, read);
    EXPECT_CU(cu().cuMemFree(address));
}

TEST_F(MemoryTest, the_cpu_and_copies_see_the_same_managed_memory) {
    ManagedMemory memory(kMiB);
    const Bytes data = fresh_bytes(kMiB);
    std::memcpy(memory.data(), data.data(), data.size());
    Bytes read(kMiB);
    EXPECT_CU(cu().cuMemcpyDtoH(read.data(), memory.address(), kMiB));
    EXPECT_EQ(data, read);
    const Bytes other = fresh_bytes(kMiB);
    EXPECT_CU(cu().cuMemcpyHtoD(memory.address(), other.data(), kMiB));
    EXPECT_CU(cu().cuCtxSynchronize());
    EXPECT_EQ(other, Bytes(memory.data(), memory.data() + kMiB));
}

TEST_F(MemoryTest, managed_memory_has_no_preferred_location_at_first) {
    ManagedMemory memory(kMiB);
    int location = 0;
    EXPECT_CU(cu().cuMemRangeGetAttribute(&location, sizeof(location),
                                          CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                          memory.address(), kMiB));
    EXPECT_EQ(CU_DEVICE_INVALID, location);
    location = 0;
    EXPECT_CU(cu().cuMemRangeGetAttribute(&location, sizeof(location),
                                          CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                                          memory.address(), kMiB));
    EXPECT_EQ(CU_DEVICE_INVALID, location);
}

TEST_F(MemoryTest, pinned_memory_has_one_address_on_both_sides) {
    PinnedMemory memory(4096);
    CUdeviceptr address = 0;
    EXPECT_CU(cu().cuMemHostGetDevicePointer(&address, memory.data() + 5, 0));
    EXPECT_EQ(memory.address() + 5, address);
    unsigned flags = 0;
    EXPECT_CU(cu().cuMemHostGetFlags(&flags, memory.data()));
    EXPECT_NE(0u, flags & CU_MEMHOSTALLOC_PORTABLE);
}

TEST_F(MemoryTest, pinned_memory_is_freed_by_its_own_function) {
    void *pointer = nullptr;
    ASSERT_CU(cu().cuMemAllocHost(&pointer, 4096));
    std::memset(pointer, 3, 4096);
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemFree(address_of(pointer)));
    EXPECT_CU(cu().cuMemFreeHost(pointer));
    EXPECT_NE(CUDA_SUCCESS, cu().cuMemFreeHost(pointer));
}

TEST_F(MemoryTest, memory_is_registered_once) {
    for (int sharing : {MAP_PRIVATE, MAP_SHARED}) {
        Pages pages(kMiB, sharing);
        const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
        ASSERT_CU(cu().cuMemHostRegister(pages.data(), kMiB, flags));
        EXPECT_EQ(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                  cu().cuMemHostRegister(pages.data(), kMiB, flags));
        EXPECT_EQ(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                  cu().cuMemHostRegister(pages.data() + 8192, 8192, flags))
            << "part of it";
        CUdeviceptr address = 0;
        EXPECT_CU(cu().cuMemHostGetDevicePointer(&address, pages.data(), 0));
        EXPECT_EQ(address_of(pages.data()), address);
        EXPECT_CU(cu().cuMemHostUnregister(pages.data()));
        EXPECT_EQ(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu().cuMemHostUnregister(pages.data()));
        EXPECT_CU(cu().cuMemHostRegister(pages.data(), kMiB, flags)) << "again";
        EXPECT_CU(cu().cuMemHostUnregister(pages.data()));
    }
}

TEST_F(MemoryTest, a_copy_must_not_leave_registered_memory_in_which_it_begins) {
    Pages pages(3 * kMiB, MAP_PRIVATE);
    CUdeviceptr memory = 0;
    ASSERT_CU(cu().cuMemAlloc(&memory, 3 * kMiB));
    ASSERT_CU(cu().cuMemHostRegister(pages.data() + kMiB, kMiB, CU_MEMHOSTREGISTER_PORTABLE));
    const auto copy = [&](std::size_t offset, std::size_t bytes) {
        const CUdeviceptr host = address_of(pages.data() + offset);
        const CUresult to_gpu = cu().cuMemcpy(memory, host, bytes);
        EXPECT_EQ(to_gpu, cu().cuMemcpy(host, memory, bytes));
        return to_gpu;
    };
    EXPECT_CU(copy(kMiB + 100, 1000));
    EXPECT_CU(copy(kMiB - 1000, 2000)) << "ends there";
    EXPECT_CU(copy(kMiB - 1000, kMiB + 2000)) << "all around it";
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, copy(2 * kMiB - 1000, 2000));
    EXPECT_CU(cu().cuMemHostUnregister(pages.data() + kMiB));
    EXPECT_CU(copy(2 * kMiB - 1000, 2000));
    EXPECT_CU(cu().cuMemFree(memory));
}

TEST_F(MemoryTest, what_is_not_memory_cannot_be_registered) {
    Pages pages(kMiB, MAP_PRIVATE);
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostRegister(pages.data(), 0, 0));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemHostRegister(nullptr, 4096, 0));
    void *hole = mmap(nullptr, kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(hole, kMiB);
    EXPECT_NE(CUDA_SUCCESS, cu().cuMemHostRegister(hole, kMiB, 0));
}

TEST_F(MemoryTest, registering_needs_a_context) {
    Pages pages(kMiB, MAP_PRIVATE);
    ASSERT_CU(cu().cuCtxSetCurrent(nullptr));
    EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cu().cuMemHostRegister(pages.data(), kMiB, 0));
    ASSERT_CU(cu().cuCtxSetCurrent(context_));
}

TEST_F(MemoryTest, pool_memory_lives_in_the_order_of_its_stream) {
    const Bytes data = fresh_bytes(kMiB);
    PinnedMemory from(data);
    PinnedMemory to(kMiB);
    Stream stream;
    CUdeviceptr address = 0;
    ASSERT_CU(cu().cuMemAllocAsync(&address, kMiB, stream));
    EXPECT_CU(cu().cuMemcpyAsync(address, from.address(), kMiB, stream));
    EXPECT_CU(cu().cuMemcpyAsync(to.address(), address, kMiB, stream));
    EXPECT_CU(cu().cuMemFreeAsync(address, stream));
    EXPECT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(data, to.read());
}

}  // namespace
