// SPDX-License-Identifier: BSD-3-Clause
// Memsets: which bytes they set, and of which memory. conformance_fill.cpp says when.
#include "test_support.hpp"

#include <cstring>

namespace {

using MemsetTest = DriverTest;

constexpr std::size_t kBytes = 4096;

TEST_F(MemsetTest, fills_device_memory) {
    const Bytes before = fresh_bytes(kBytes);
    DeviceMemory memory(before);
    Stream stream;
    EXPECT_CU(cu().cuMemsetD8(memory.address() + 1, 0xa5, 1000));
    EXPECT_CU(cu().cuMemsetD16(memory.address() + 1024, 0x0708, 100));
    EXPECT_CU(cu().cuCtxSynchronize());
    EXPECT_CU(cu().cuMemsetD32Async(memory.address() + 2048, 0x01020304, 256, stream));
    EXPECT_CU(cu().cuMemsetD8Async(memory.address() + 3072, 0x11, 24, stream));
    EXPECT_CU(cu().cuStreamSynchronize(stream));
    Bytes expected = before;
    std::memset(expected.data() + 1, 0xa5, 1000);
    for (std::size_t i = 1024; i < 1224; ++i) {
        expected[i] = static_cast<unsigned char>(8 - i % 2);
    }
    for (std::size_t i = 2048; i < 3072; ++i) {
        expected[i] = static_cast<unsigned char>(4 - i % 4);
    }
    std::memset(expected.data() + 3072, 0x11, 24);
    EXPECT_EQ(expected, memory.read());
}

TEST_F(MemsetTest, leaves_what_lies_between_rows) {
    constexpr std::size_t kPitch = 64;
    const Bytes before = fresh_bytes(kBytes);
    DeviceMemory memory(before);
    EXPECT_CU(cu().cuMemsetD2D8(memory.address() + 1, kPitch, 0xa5, 13, 10));
    EXPECT_CU(cu().cuMemsetD2D16(memory.address() + 20, kPitch, 0xa5a5, 5, 10));
    EXPECT_CU(cu().cuMemsetD2D32(memory.address() + 40, kPitch, 0xa5a5a5a5, 6, 10));
    Bytes expected = before;
    for (std::size_t row = 0; row < 10; ++row) {
        std::memset(expected.data() + row * kPitch + 1, 0xa5, 13);
        std::memset(expected.data() + row * kPitch + 20, 0xa5, 10);
        std::memset(expected.data() + row * kPitch + 40, 0xa5, 24);
    }
    EXPECT_EQ(expected, memory.read());
}

TEST_F(MemsetTest, of_nothing_succeeds) {
    DeviceMemory memory(kBytes);
    EXPECT_CU(cu().cuMemsetD8(memory.address(), 1, 0));
    EXPECT_CU(cu().cuMemsetD2D8(memory.address(), 64, 1, 0, 3));
    EXPECT_CU(cu().cuMemsetD2D8(memory.address(), 64, 1, 3, 0));
}

TEST_F(MemsetTest, of_values_that_are_not_aligned_is_refused) {
    DeviceMemory memory(kBytes);
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD16(memory.address() + 1, 1, 1));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD32(memory.address() + 2, 1, 1));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD2D32(memory.address() + 2, 64, 1, 1, 2));
}

TEST_F(MemsetTest, of_pinned_memory_is_complete_when_it_returns) {
    const Bytes before = fresh_bytes(kBytes);
    PinnedMemory memory(before);
    LegacyGate legacy;
    legacy.gate.open_later(std::chrono::milliseconds(30));
    ASSERT_CU(cu().cuMemsetD8(memory.address(), 0x5a, kBytes));
    EXPECT_TRUE(legacy.gate.opened()) << "the call did not wait";
    EXPECT_EQ(Bytes(kBytes, 0x5a), memory.read());
}

TEST_F(MemsetTest, of_pinned_memory_in_a_stream_is_not) {
    const Bytes before = fresh_bytes(kBytes);
    PinnedMemory memory(before);
    Stream stream;
    Gate gate;
    gate.close(stream);
    ASSERT_CU(cu().cuMemsetD8Async(memory.address(), 0x5a, kBytes, stream));
    EXPECT_EQ(before, memory.read());
    EXPECT_FALSE(gate.opened()) << "the call waited";
    gate.open();
    EXPECT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(Bytes(kBytes, 0x5a), memory.read());
}

}  // namespace
