// SPDX-License-Identifier: BSD-3-Clause
// Where managed memory is: the CPU's page table has a page, or not.
#include "kernel_support.hpp"
#include "touch_kernel.hpp"

#include <cstring>

namespace {

using ManagedTest = DriverTest;

constexpr std::size_t kBytes = 4 << 20;
constexpr std::size_t kPages = kBytes / 4096;

TEST_F(ManagedTest, what_the_cpu_wrote_is_present) {
    ManagedMemory memory(kBytes);
    std::memset(memory.data(), 1, kBytes);
    EXPECT_EQ(kPages, present_pages(memory.data(), kBytes));
}

TEST_F(ManagedTest, what_a_memset_wrote_is_not_present_until_the_cpu_touches_it) {
    ManagedMemory memory(kBytes);
    std::memset(memory.data(), 1, kBytes);
    ASSERT_CU(cu().cuMemsetD8(memory.address(), 2, kBytes));
    ASSERT_CU(cu().cuCtxSynchronize());
    EXPECT_EQ(0u, present_pages(memory.data(), kBytes));
    memory.data()[kBytes / 2] = 3;
    EXPECT_EQ(1u, present_pages(memory.data() + kBytes / 2, 4096));
    EXPECT_LT(present_pages(memory.data(), kBytes), kPages) << "the others stay where they are";
    Bytes expected(kBytes, 2);
    expected[kBytes / 2] = 3;
    EXPECT_EQ(expected, Bytes(memory.data(), memory.data() + kBytes));
    EXPECT_EQ(kPages, present_pages(memory.data(), kBytes)) << "the CPU has read it all";
}

TEST_F(ManagedTest, a_copy_to_device_memory_moves_what_it_reads) {
    ManagedMemory memory(kBytes);
    DeviceMemory device(kBytes);
    const Bytes data = fresh_bytes(kBytes);
    std::memcpy(memory.data(), data.data(), kBytes);
    ASSERT_CU(cu().cuMemcpyDtoD(device.address(), memory.address(), kBytes));
    ASSERT_CU(cu().cuCtxSynchronize());
    EXPECT_EQ(0u, present_pages(memory.data(), kBytes));
    EXPECT_EQ(data, device.read());
    EXPECT_EQ(data, Bytes(memory.data(), memory.data() + kBytes)) << "nothing is lost";
}

TEST_F(ManagedTest, a_copy_from_device_memory_moves_what_it_writes) {
    ManagedMemory memory(kBytes);
    const Bytes data = fresh_bytes(kBytes);
    DeviceMemory device(data);
    std::memset(memory.data(), 1, kBytes);
    ASSERT_CU(cu().cuMemcpyDtoD(memory.address(), device.address(), kBytes));
    ASSERT_CU(cu().cuCtxSynchronize());
    EXPECT_EQ(0u, present_pages(memory.data(), kBytes));
    EXPECT_EQ(data, Bytes(memory.data(), memory.data() + kBytes));
}

TEST_F(ManagedTest, what_a_kernel_has_read_is_not_present_until_the_cpu_touches_it) {
    ManagedMemory memory(kBytes);
    const Bytes data = fresh_bytes(kBytes);
    std::memcpy(memory.data(), data.data(), kBytes);
    LoadedKernel kernel("simcuda_touch", kTouchImage);
    Stream stream;
    ASSERT_CU(kernel.launch(stream, TouchedRange{memory.address(), kBytes}, 1, kTouchThreads));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(0u, present_pages(memory.data(), kBytes));
    EXPECT_EQ(data, Bytes(memory.data(), memory.data() + kBytes));
    EXPECT_EQ(kPages, present_pages(memory.data(), kBytes));
}

TEST_F(ManagedTest, memory_is_prefetched) {
    ManagedMemory memory(kBytes);
    Stream stream;
    std::memset(memory.data(), 1, kBytes);
    ASSERT_CU(cu().prefetch(memory.address(), kBytes, 0, stream));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(0u, present_pages(memory.data(), kBytes));
    int location = 77;
    EXPECT_CU(cu().cuMemRangeGetAttribute(&location, sizeof(location),
                                          CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                                          memory.address(), kBytes));
    EXPECT_EQ(0, location);
    ASSERT_CU(cu().prefetch(memory.address(), kBytes, CU_DEVICE_CPU, stream));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(Bytes(kBytes, 1), Bytes(memory.data(), memory.data() + kBytes));
    EXPECT_CU(cu().cuMemRangeGetAttribute(&location, sizeof(location),
                                          CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                                          memory.address(), kBytes));
    EXPECT_EQ(CU_DEVICE_CPU, location);
}

}  // namespace
