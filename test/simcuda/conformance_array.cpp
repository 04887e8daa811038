// SPDX-License-Identifier: BSD-3-Clause
// CUDA arrays, and copies from and to them.
#include "test_support.hpp"

#include <algorithm>

namespace {

constexpr std::size_t kBytes = 4096;

// Of 16-bit elements; a height of 0 is that of a one-dimensional array.
class Array {
public:
    explicit Array(std::size_t bytes, std::size_t height = 0) {
        const CUDA_ARRAY_DESCRIPTOR description{bytes / 2, height, CU_AD_FORMAT_UNSIGNED_INT16, 1};
        EXPECT_CU(cu().cuArrayCreate(&handle_, &description));
    }
    ~Array() { EXPECT_CU(cu().cuArrayDestroy(handle_)); }
    Array(const Array &) = delete;

    operator CUarray() const { return handle_; }

private:
    CUarray handle_ = nullptr;
};

class ArrayTest : public DriverTest {
protected:
    const Bytes data_ = fresh_bytes(kBytes);

    static Bytes read(const Array &array, std::size_t bytes = kBytes) {
        Bytes content(bytes);
        EXPECT_CU(cu().cuMemcpyAtoH(content.data(), array, 0, bytes));
        return content;
    }
};

TEST_F(ArrayTest, bytes_arrive_from_and_in_host_memory) {
    Array array(kBytes);
    ASSERT_CU(cu().cuMemcpyHtoA(array, 0, data_.data(), kBytes));
    EXPECT_EQ(data_, read(array));
    ASSERT_CU(cu().cuMemcpyHtoA(array, 100, data_.data(), 200));
    Bytes expected = data_;
    std::copy_n(data_.begin(), 200, expected.begin() + 100);
    EXPECT_EQ(expected, read(array));
    Bytes part(50);
    ASSERT_CU(cu().cuMemcpyAtoH(part.data(), array, 120, part.size()));
    EXPECT_EQ(Bytes(expected.begin() + 120, expected.begin() + 170), part);
}

TEST_F(ArrayTest, bytes_arrive_from_and_in_device_memory_and_other_arrays) {
    DeviceMemory from(data_);
    DeviceMemory to(kBytes);
    Array array(kBytes);
    Array other(kBytes);
    ASSERT_CU(cu().cuMemcpyDtoA(array, 0, from.address(), kBytes));
    ASSERT_CU(cu().cuMemcpyAtoA(other, 0, array, 0, kBytes));
    ASSERT_CU(cu().cuMemcpyAtoD(to.address(), other, 0, kBytes));
    EXPECT_EQ(data_, to.read());
    ASSERT_CU(cu().cuMemcpyAtoA(other, 64, array, 32, 128));
    Bytes expected = data_;
    std::copy_n(data_.begin() + 32, 128, expected.begin() + 64);
    EXPECT_EQ(expected, read(other));
}

TEST_F(ArrayTest, asynchronous_copies_happen_when_the_stream_gets_there) {
    PinnedMemory from(fresh_bytes(kBytes));
    PinnedMemory to(kBytes);
    Array array(kBytes);
    Stream stream;
    Gate gate;
    gate.close(stream);
    ASSERT_CU(cu().cuMemcpyHtoAAsync(array, 0, from.data(), kBytes, stream));
    ASSERT_CU(cu().cuMemcpyAtoHAsync(to.data(), array, 0, kBytes, stream));
    from.fill(data_);
    EXPECT_EQ(Bytes(kBytes, 0), to.read());
    EXPECT_FALSE(gate.opened()) << "a call waited";
    gate.open();
    EXPECT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(data_, to.read());
}

TEST_F(ArrayTest, a_copy_from_an_array_to_device_memory_returns_before_it_is_complete) {
    const Bytes before = fresh_bytes(kBytes);
    DeviceMemory to(before);
    Array array(kBytes);
    ASSERT_CU(cu().cuMemcpyHtoA(array, 0, data_.data(), kBytes));
    Onlooker onlooker(kBytes);
    LegacyGate legacy;
    ASSERT_CU(cu().cuMemcpyAtoD(to.address(), array, 0, kBytes));
    onlooker.expect_change(to.address(), before, data_, legacy.gate, CU_STREAM_LEGACY);
}

TEST_F(ArrayTest, a_copy_from_device_memory_to_an_array_returns_before_it_is_complete) {
    DeviceMemory from(fresh_bytes(kBytes));
    DeviceMemory last(data_);
    Array array(kBytes);
    Stream stream;
    {
        LegacyGate legacy;
        ASSERT_CU(cu().cuMemcpyDtoA(array, 0, from.address(), kBytes));
        EXPECT_CU(cu().cuMemcpyDtoDAsync(from.address(), last.address(), kBytes, stream));
        EXPECT_CU(cu().cuStreamSynchronize(stream));
        EXPECT_FALSE(legacy.gate.opened()) << "a call waited";
    }
    EXPECT_EQ(data_, read(array)) << "the source was read too early";
}

TEST_F(ArrayTest, rows_arrive_in_arrays_of_two_dimensions) {
    constexpr std::size_t kWidth = 64;
    constexpr std::size_t kHeight = kBytes / kWidth;
    Array array(kWidth, kHeight);
    DeviceMemory from(data_);
    Bytes to(kBytes, 0);
    CUDA_MEMCPY2D in{};
    in.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    in.srcDevice = from.address();
    in.srcPitch = kWidth;
    in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    in.dstArray = array;
    in.WidthInBytes = kWidth;
    in.Height = kHeight;
    ASSERT_CU(cu().cuMemcpy2D(&in));
    CUDA_MEMCPY2D out{};
    out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    out.srcArray = array;
    out.srcXInBytes = 6;
    out.srcY = 3;
    out.dstMemoryType = CU_MEMORYTYPE_HOST;
    out.dstHost = to.data();
    out.dstPitch = 100;
    out.WidthInBytes = 20;
    out.Height = 5;
    ASSERT_CU(cu().cuMemcpy2DUnaligned(&out));
    Bytes expected(kBytes, 0);
    for (std::ptrdiff_t row = 0; row < 5; ++row) {
        std::copy_n(data_.begin() + (3 + row) * 64 + 6, 20, expected.begin() + row * 100);
    }
    EXPECT_EQ(expected, to);
    in.dstY = 1;
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy2D(&in)) << "more rows than there are";
}

TEST_F(ArrayTest, slices_arrive_in_arrays_of_three_dimensions) {
    CUDA_ARRAY3D_DESCRIPTOR description{};
    description.Width = 32;
    description.Height = 8;
    description.Depth = 4;
    description.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    description.NumChannels = 4;
    CUarray array = nullptr;
    ASSERT_CU(cu().cuArray3DCreate(&array, &description));
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = data_.data();
    copy.srcPitch = 128;
    copy.srcHeight = 8;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.WidthInBytes = 128;
    copy.Height = 8;
    copy.Depth = 4;
    EXPECT_CU(cu().cuMemcpy3D(&copy));
    Bytes to(kBytes, 0);
    CUDA_MEMCPY3D back{};
    back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    back.srcArray = array;
    back.srcZ = 1;
    back.srcY = 2;
    back.dstMemoryType = CU_MEMORYTYPE_HOST;
    back.dstHost = to.data();
    back.dstPitch = 128;
    back.dstHeight = 3;
    back.WidthInBytes = 128;
    back.Height = 3;
    back.Depth = 3;
    EXPECT_CU(cu().cuMemcpy3D(&back));
    Bytes expected(kBytes, 0);
    for (std::ptrdiff_t slice = 0; slice < 3; ++slice) {
        std::copy_n(data_.begin() + (1 + slice) * 1024 + 256, 384, expected.begin() + slice * 384);
    }
    EXPECT_EQ(expected, to);
    EXPECT_CU(cu().cuArrayDestroy(array));
}

}  // namespace
