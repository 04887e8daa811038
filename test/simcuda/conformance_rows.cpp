// SPDX-License-Identifier: BSD-3-Clause
// cuMemcpy2DAsync and cuMemcpy3DAsync: rows arrive, what lies between them stays.
#include "test_support.hpp"

namespace {

constexpr std::size_t kWidth = 24;
constexpr std::size_t kRows = 50;
constexpr std::size_t kFromPitch = 40;
constexpr std::size_t kToPitch = 72;

CUDA_MEMCPY2D rows_between(CUdeviceptr to, CUmemorytype to_type, CUdeviceptr from,
                           CUmemorytype from_type)
{
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = from_type;
    rows.srcHost = reinterpret_cast<void*>(from);
    rows.srcDevice = from;
    rows.srcPitch = kFromPitch;
    rows.dstMemoryType = to_type;
    rows.dstHost = reinterpret_cast<void*>(to);
    rows.dstDevice = to;
    rows.dstPitch = kToPitch;
    rows.WidthInBytes = kWidth;
    rows.Height = kRows;
    return rows;
}

Bytes with_rows(Bytes to, const Bytes& from)
{
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

    void copy(const CUDA_MEMCPY2D& rows)
    {
        Stream stream;
        ASSERT_CU(cu().cuMemcpy2DAsync(&rows, stream));
        ASSERT_CU(cu().cuStreamSynchronize(stream));
    }
};

TEST_F(RowsTest, arrive_within_a_device)
{
    DeviceMemory from(from_);
    DeviceMemory to(to_);
    copy(rows_between(to.address(), CU_MEMORYTYPE_DEVICE, from.address(), CU_MEMORYTYPE_DEVICE));
    EXPECT_EQ(to.read(), with_rows(to_, from_));
}

TEST_F(RowsTest, arrive_in_pageable_memory_before_the_call_returns)
{
    DeviceMemory from(from_);
    Bytes to = to_;
    const CUDA_MEMCPY2D rows =
        rows_between(reinterpret_cast<CUdeviceptr>(to.data()), CU_MEMORYTYPE_HOST, from.address(),
                     CU_MEMORYTYPE_DEVICE);
    Stream stream;
    ASSERT_CU(cu().cuMemcpy2DAsync(&rows, stream));
    EXPECT_EQ(to, with_rows(to_, from_));
}

TEST_F(RowsTest, arrive_from_pageable_memory)
{
    DeviceMemory to(to_);
    Bytes from = from_;
    copy(rows_between(to.address(), CU_MEMORYTYPE_DEVICE,
                      reinterpret_cast<CUdeviceptr>(from.data()), CU_MEMORYTYPE_HOST));
    EXPECT_EQ(to.read(), with_rows(to_, from_));
}

TEST_F(RowsTest, arrive_in_slices)
{
    DeviceMemory from(from_);
    DeviceMemory to(to_);
    CUDA_MEMCPY3D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = from.address();
    rows.srcPitch = kFromPitch;
    rows.srcHeight = 7;
    rows.srcXInBytes = 3;
    rows.srcY = 2;
    rows.srcZ = 1;
    rows.dstDevice = to.address();
    rows.dstPitch = kToPitch;
    rows.dstHeight = 9;
    rows.WidthInBytes = kWidth;
    rows.Height = 4;
    rows.Depth = 5;
    Stream stream;
    ASSERT_CU(cu().cuMemcpy3DAsync(&rows, stream));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    Bytes expected = to_;
    for (std::size_t slice = 0; slice < rows.Depth; ++slice) {
        for (std::size_t row = 0; row < rows.Height; ++row) {
            const std::size_t source = ((1 + slice) * 7 + 2 + row) * kFromPitch + 3;
            const std::size_t destination = (slice * 9 + row) * kToPitch;
            std::copy_n(from_.begin() + static_cast<std::ptrdiff_t>(source), kWidth,
                        expected.begin() + static_cast<std::ptrdiff_t>(destination));
        }
    }
    EXPECT_EQ(to.read(), expected);
}

TEST_F(RowsTest, are_as_long_as_their_distance_at_most)
{
    DeviceMemory from(from_);
    DeviceMemory to(to_);
    CUDA_MEMCPY2D rows =
        rows_between(to.address(), CU_MEMORYTYPE_DEVICE, from.address(), CU_MEMORYTYPE_DEVICE);
    rows.WidthInBytes = kFromPitch + 1;
    Stream stream;
    EXPECT_EQ(cu().cuMemcpy2DAsync(&rows, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(to.read(), to_);
}

} // namespace
