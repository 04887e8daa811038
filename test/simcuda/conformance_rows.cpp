// SPDX-License-Identifier: BSD-3-Clause
// cuMemcpy2D, cuMemcpy3D and their kin: rows arrive, what lies between them stays.
// conformance_fill.cpp says when.
#include "test_support.hpp"

namespace {

constexpr std::size_t kWidth = 24;
constexpr std::size_t kRows = 50;
constexpr std::size_t kFromPitch = 40;
constexpr std::size_t kToPitch = 72;

CUDA_MEMCPY2D rows_between(CUdeviceptr to, CUmemorytype to_type, CUdeviceptr from,
                           CUmemorytype from_type) {
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = from_type;
    rows.srcHost = reinterpret_cast<void *>(from);
    rows.srcDevice = from;
    rows.srcPitch = kFromPitch;
    rows.dstMemoryType = to_type;
    rows.dstHost = reinterpret_cast<void *>(to);
    rows.dstDevice = to;
    rows.dstPitch = kToPitch;
    rows.WidthInBytes = kWidth;
    rows.Height = kRows;
    return rows;
}

Bytes with_rows(Bytes to, const Bytes &from) {
    for (std::size_t row = 0; row < kRows; ++row) {
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(row * kFromPitch), kWidth,
                    to.begin() + static_cast<std::ptrdiff_t>(row * kToPitch));
    }
    return to;
}

class RowsTest : public DriverTest {
protected:
    const Bytes from_ = fresh_bytes(kRows * kFromPitch);
    const Bytes to_ = fresh_bytes(kRows * kToPitch);

    void copy(const CUDA_MEMCPY2D &rows) {
        Stream stream;
        ASSERT_CU(cu().cuMemcpy2DAsync(&rows, stream));
        ASSERT_CU(cu().cuStreamSynchronize(stream));
    }
};

TEST_F(RowsTest, arrive_within_a_device) {
    DeviceMemory from(from_);
    DeviceMemory to(to_);
    copy(rows_between(to.address(), CU_MEMORYTYPE_DEVICE, from.address(), CU_MEMORYTYPE_DEVICE));
    EXPECT_EQ(to.read(), with_rows(to_, from_));
}

TEST_F(RowsTest, arrive_in_pageable_memory_before_the_call_returns) {
    DeviceMemory from(from_);
    Bytes to = to_;
    const CUDA_MEMCPY2D rows = rows_between(address_of(to.data()), CU_MEMORYTYPE_HOST,
                                            from.address(), CU_MEMORYTYPE_DEVICE);
    Stream stream;
    ASSERT_CU(cu().cuMemcpy2DAsync(&rows, stream));
    EXPECT_EQ(to, with_rows(to_, from_));
}

TEST_F(RowsTest, arrive_from_pageable_memory) {
    DeviceMemory to(to_);
    Bytes from = from_;
    copy(rows_between(to.address(), CU_MEMORYTYPE_DEVICE, address_of(from.data()),
                      CU_MEMORYTYPE_HOST));
    EXPECT_EQ(to.read(), with_rows(to_, from_));
}

// `Slices`: CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER.
template <typename Slices>
Slices slices_between(CUdeviceptr to, CUdeviceptr from) {
    Slices rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = from;
    rows.srcPitch = kFromPitch;
    rows.srcHeight = 7;
    rows.srcXInBytes = 3;
    rows.srcY = 2;
    rows.srcZ = 1;
    rows.dstDevice = to;
    rows.dstPitch = kToPitch;
    rows.dstHeight = 9;
    rows.WidthInBytes = kWidth;
    rows.Height = 4;
    rows.Depth = 5;
    return rows;
}

Bytes with_slices(Bytes to, const Bytes &from) {
    for (std::size_t slice = 0; slice < 5; ++slice) {
        for (std::size_t row = 0; row < 4; ++row) {
            const std::size_t source = ((1 + slice) * 7 + 2 + row) * kFromPitch + 3;
            const std::size_t destination = (slice * 9 + row) * kToPitch;
            std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(source), kWidth,
                        to.begin() + static_cast<std::ptrdiff_t>(destination));
        }
    }
    return to;
}

TEST_F(RowsTest, arrive_in_slices) {
    DeviceMemory from(from_);
    DeviceMemory to(to_);
    const auto rows = slices_between<CUDA_MEMCPY3D>(to.address(), from.address());
    Stream stream;
    ASSERT_CU(cu().cuMemcpy3DAsync(&rows, stream));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(to.read(), with_slices(to_, from_));
}

TEST_F(RowsTest, arrive_by_synchronous_calls) {
    DeviceMemory from(from_);
    for (const auto call : {cu().cuMemcpy2D, cu().cuMemcpy2DUnaligned}) {
        DeviceMemory to(to_);
        const CUDA_MEMCPY2D rows =
            rows_between(to.address(), CU_MEMORYTYPE_DEVICE, from.address(), CU_MEMORYTYPE_DEVICE);
        ASSERT_CU(call(&rows));
        EXPECT_EQ(to.read(), with_rows(to_, from_));
    }
    DeviceMemory to(to_);
    const auto slices = slices_between<CUDA_MEMCPY3D>(to.address(), from.address());
    ASSERT_CU(cu().cuMemcpy3D(&slices));
    EXPECT_EQ(to.read(), with_slices(to_, from_));
}

TEST_F(RowsTest, arrive_in_host_memory_before_a_synchronous_call_returns) {
    DeviceMemory from(from_);
    PinnedMemory pinned(to_);
    Bytes pageable = to_;
    for (void *to : {static_cast<void *>(pinned.data()), static_cast<void *>(pageable.data())}) {
        const CUDA_MEMCPY2D rows =
            rows_between(address_of(to), CU_MEMORYTYPE_HOST, from.address(), CU_MEMORYTYPE_DEVICE);
        LegacyGate legacy;
        legacy.gate.open_later(std::chrono::milliseconds(30));
        ASSERT_CU(cu().cuMemcpy2D(&rows));
        EXPECT_TRUE(legacy.gate.opened()) << "the call did not wait";
        const auto *arrived = static_cast<const unsigned char *>(to);
        EXPECT_EQ(Bytes(arrived, arrived + to_.size()), with_rows(to_, from_));
    }
}

TEST_F(RowsTest, are_read_from_pageable_memory_before_a_synchronous_call_returns) {
    DeviceMemory to(to_);
    Bytes from = from_;
    const CUDA_MEMCPY2D rows = rows_between(to.address(), CU_MEMORYTYPE_DEVICE,
                                            address_of(from.data()), CU_MEMORYTYPE_HOST);
    ASSERT_CU(cu().cuMemcpy2D(&rows));
    std::fill(from.begin(), from.end(), 0);
    EXPECT_EQ(to.read(), with_rows(to_, from_));
}

TEST_F(RowsTest, arrive_in_another_device) {
    if (device_count() < 2) {
        GTEST_SKIP() << "needs two devices";
    }
    DeviceMemory from(from_);
    CUcontext peer = nullptr;
    ASSERT_CU(cu().cuDevicePrimaryCtxRetain(&peer, 1));
    ASSERT_CU(cu().cuCtxPushCurrent(peer));
    {
        DeviceMemory to(to_);
        auto rows = slices_between<CUDA_MEMCPY3D_PEER>(to.address(), from.address());
        rows.srcContext = context_;
        rows.dstContext = peer;
        EXPECT_CU(cu().cuMemcpy3DPeer(&rows));
        EXPECT_EQ(to.read(), with_slices(to_, from_));
    }
    EXPECT_CU(cu().cuCtxPopCurrent(nullptr));
    EXPECT_CU(cu().cuDevicePrimaryCtxRelease(1));
}

TEST_F(RowsTest, are_as_long_as_their_distance_at_most) {
    DeviceMemory from(from_);
    DeviceMemory to(to_);
    CUDA_MEMCPY2D rows =
        rows_between(to.address(), CU_MEMORYTYPE_DEVICE, from.address(), CU_MEMORYTYPE_DEVICE);
    rows.WidthInBytes = kFromPitch + 1;
    Stream stream;
    EXPECT_EQ(cu().cuMemcpy2DAsync(&rows, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(to.read(), to_);
}

}  // namespace
