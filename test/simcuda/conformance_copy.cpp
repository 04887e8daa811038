// SPDX-License-Identifier: BSD-3-Clause
// Copies: the bytes arrive, and a call returns when the manual of the driver API says ("API
// synchronization behavior").
#include "test_support.hpp"

#include <cstring>

namespace {

using CopyTest = DriverTest;

constexpr std::size_t kMiB = 1 << 20;
using std::chrono::milliseconds;

TEST_F(CopyTest, bytes_arrive_between_all_kinds_of_memory) {
    for (std::size_t bytes : {std::size_t{1}, std::size_t{7}, std::size_t{4095}, kMiB + 3}) {
        const Bytes data = fresh_bytes(bytes);
        DeviceMemory device(bytes);
        DeviceMemory other_device(bytes);
        PinnedMemory pinned(bytes);
        ManagedMemory managed(bytes);
        Bytes pageable = data;
        const CUdeviceptr way[] = {
            address_of(pageable.data()), device.address(),  pinned.address(), managed.address(),
            other_device.address(),      managed.address(), pinned.address(), device.address()};
        for (std::size_t i = 1; i < sizeof(way) / sizeof(way[0]); ++i) {
            EXPECT_CU(cu().cuMemcpy(way[i], way[i - 1], bytes));
        }
        Bytes arrived(bytes);
        EXPECT_CU(cu().cuMemcpy(address_of(arrived.data()), device.address(), bytes));
        EXPECT_EQ(data, arrived) << bytes;
    }
}

TEST_F(CopyTest, only_the_bytes_asked_for_are_written) {
    const Bytes before = fresh_bytes(300);
    const Bytes data = fresh_bytes(100);
    DeviceMemory memory(before);
    EXPECT_CU(cu().cuMemcpyHtoD(memory.address() + 100, data.data(), 100));
    Bytes expected = before;
    std::memcpy(expected.data() + 100, data.data(), 100);
    EXPECT_EQ(expected, memory.read());
}

TEST_F(CopyTest, devices_exchange_bytes) {
    if (device_count() < 2) {
        GTEST_SKIP() << "needs two devices";
    }
    const Bytes data = fresh_bytes(kMiB);
    DeviceMemory here(data);
    DeviceMemory back(kMiB);
    CUcontext peer = nullptr;
    ASSERT_CU(cu().cuDevicePrimaryCtxRetain(&peer, 1));
    ASSERT_CU(cu().cuCtxPushCurrent(peer));
    {
        DeviceMemory there(kMiB);
        Stream stream;
        EXPECT_CU(cu().cuMemcpyAsync(there.address(), here.address(), kMiB, stream));
        EXPECT_CU(
            cu().cuMemcpyPeerAsync(back.address(), context_, there.address(), peer, kMiB, stream));
        EXPECT_CU(cu().cuStreamSynchronize(stream));
        EXPECT_EQ(data, back.read());
        const Bytes later = fresh_bytes(kMiB);
        DeviceMemory once_more(later);
        EXPECT_CU(cu().cuMemcpyPeer(back.address(), context_, once_more.address(), peer, kMiB));
        EXPECT_CU(cu().cuMemcpyDtoD(there.address(), back.address(), kMiB));
        EXPECT_EQ(later, there.read());
        EXPECT_CU(cu().cuMemcpy(back.address(), here.address(), kMiB));
        EXPECT_CU(cu().cuCtxSynchronize());
    }
    EXPECT_CU(cu().cuCtxPopCurrent(nullptr));
    EXPECT_CU(cu().cuDevicePrimaryCtxRelease(1));
    EXPECT_EQ(data, back.read());
}

TEST_F(CopyTest, a_copy_of_nothing_succeeds) {
    DeviceMemory memory(8);
    Stream stream;
    EXPECT_CU(cu().cuMemcpyAsync(memory.address(), memory.address(), 0, stream));
    EXPECT_CU(cu().cuMemcpy(memory.address(), memory.address(), 0));
}

TEST_F(CopyTest, a_copy_beyond_the_end_of_device_memory_is_refused) {
    DeviceMemory memory(4 * kMiB);
    Bytes host(4 * kMiB);
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
              cu().cuMemcpyDtoH(host.data(), memory.address() + 2 * kMiB, 4 * kMiB));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
              cu().cuMemcpyHtoD(memory.address() + 2 * kMiB, host.data(), 4 * kMiB));
}

TEST_F(CopyTest, a_copy_on_a_default_stream_needs_a_context) {
    Bytes data = fresh_bytes(64);
    DeviceMemory memory(data);
    ASSERT_CU(cu().cuCtxSetCurrent(nullptr));
    EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cu().cuMemcpyHtoD(memory.address(), data.data(), 64));
    EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT,
              cu().cuMemcpyAsync(memory.address(), address_of(data.data()), 64, nullptr));
    ASSERT_CU(cu().cuCtxSetCurrent(context_));
}

TEST_F(CopyTest, a_copy_on_a_stream_of_its_own_needs_no_current_context) {
    Bytes data = fresh_bytes(64);
    DeviceMemory memory(64);
    Stream stream;
    ASSERT_CU(cu().cuCtxSetCurrent(nullptr));
    EXPECT_CU(cu().cuMemcpyAsync(memory.address(), address_of(data.data()), 64, stream));
    ASSERT_CU(cu().cuCtxSetCurrent(context_));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(data, memory.read());
}

TEST_F(CopyTest, an_asynchronous_copy_reads_pinned_memory_later) {
    const Bytes last = fresh_bytes(kMiB);
    PinnedMemory from(fresh_bytes(kMiB));
    DeviceMemory to(kMiB);
    Stream stream;
    Gate gate;
    gate.close(stream);
    ASSERT_CU(cu().cuMemcpyAsync(to.address(), from.address(), kMiB, stream));
    from.fill(last);
    ASSERT_FALSE(gate.opened()) << "the call waited";
    gate.open();
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(last, to.read());
}

TEST_F(CopyTest, an_asynchronous_copy_takes_pageable_memory_at_once) {
    for (std::size_t bytes : {std::size_t{8}, std::size_t{60000}, 4 * kMiB}) {
        const Bytes data = fresh_bytes(bytes);
        Bytes from = data;
        const Bytes later = fresh_bytes(bytes);
        DeviceMemory to(bytes);
        Stream stream;
        ASSERT_CU(cu().cuMemcpyAsync(to.address(), address_of(from.data()), bytes, stream));
        std::memcpy(from.data(), later.data(), bytes);
        ASSERT_CU(cu().cuStreamSynchronize(stream));
        EXPECT_EQ(data, to.read()) << bytes;
    }
}

TEST_F(CopyTest, an_asynchronous_copy_to_pinned_memory_arrives_later) {
    const Bytes data = fresh_bytes(kMiB);
    const Bytes before = fresh_bytes(kMiB);
    DeviceMemory from(data);
    PinnedMemory to(before);
    Stream stream;
    Gate gate;
    gate.close(stream);
    ASSERT_CU(cu().cuMemcpyAsync(to.address(), from.address(), kMiB, stream));
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(stream));
    EXPECT_EQ(before, to.read());
    ASSERT_FALSE(gate.opened()) << "a call waited";
    gate.open();
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(data, to.read());
}

TEST_F(CopyTest, an_asynchronous_copy_to_pageable_memory_is_complete_when_it_returns) {
    for (std::size_t bytes : {std::size_t{8}, std::size_t{60000}, 4 * kMiB}) {
        const Bytes data = fresh_bytes(bytes);
        DeviceMemory from(data);
        Bytes to(bytes);
        Stream stream;
        ASSERT_CU(cu().cuMemcpyAsync(address_of(to.data()), from.address(), bytes, stream));
        EXPECT_EQ(data, to) << bytes;
    }
}

TEST_F(CopyTest, registered_memory_is_copied_like_pinned_memory) {
    const Bytes last = fresh_bytes(kMiB);
    Bytes from = fresh_bytes(kMiB);
    DeviceMemory to(kMiB);
    ASSERT_CU(cu().cuMemHostRegister(from.data(), kMiB, CU_MEMHOSTREGISTER_PORTABLE));
    {
        Stream stream;
        Gate gate;
        gate.close(stream);
        ASSERT_CU(cu().cuMemcpyAsync(to.address(), address_of(from.data()), kMiB, stream));
        std::memcpy(from.data(), last.data(), kMiB);
        EXPECT_FALSE(gate.opened()) << "the call waited";
    }
    EXPECT_CU(cu().cuMemHostUnregister(from.data()));
    EXPECT_EQ(last, to.read());
}

TEST_F(CopyTest, a_synchronous_copy_to_the_host_is_complete_when_it_returns) {
    const Bytes data = fresh_bytes(kMiB);
    DeviceMemory from(data);
    PinnedMemory to(kMiB);
    {
        LegacyGate legacy;
        legacy.gate.open_later(milliseconds(50));
        ASSERT_CU(cu().cuMemcpyDtoH(to.data(), from.address(), kMiB));
        EXPECT_TRUE(legacy.gate.opened()) << "the call did not wait";
        EXPECT_EQ(data, to.read());
    }
}

}  // namespace
