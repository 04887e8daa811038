// SPDX-License-Identifier: BSD-3-Clause
// A kernel that fills the GPU.
#pragma once

#include "test/gtest/core/gpu_support.hpp"
#include "test/simcuda/spin_kernel.hpp"

#include <gtest/gtest.h>

namespace gpushm::test {

/** A kernel of the application that fills the GPU from fill() until open(). Make it after all
 * memory of the test. */
class FullGpu {
public:
    FullGpu() {
        const CudaDriver &driver = *CudaDriver::get();
        EXPECT_EQ(driver.module_load_data(&module_, kSpinImage), CUDA_SUCCESS);
        EXPECT_EQ(driver.module_get_function(&spin_, module_, "simcuda_spin"), CUDA_SUCCESS);
        EXPECT_EQ(driver.stream_create(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        EXPECT_EQ(driver.stream_create(&other_stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        write_word(0);
    }
    ~FullGpu() {
        open();
        const CudaDriver &driver = *CudaDriver::get();
        driver.stream_destroy(stream_);
        driver.stream_destroy(other_stream_);
        cuda_function<CUresult (*)(CUmodule)>("cuModuleUnload")(module_);
    }

    void fill() {
        CUdeviceptr word = device_pointer(word_.data());
        void *parameters[] = {&word};
        EXPECT_EQ(CudaDriver::get()->launch_kernel(spin_, kFillingBlocks, 1, 1, kFillingThreads, 1,
                                                   1, 0, stream_, parameters, nullptr),
                  CUDA_SUCCESS);
    }

    void open() {
        write_word(1);
        EXPECT_EQ(CudaDriver::get()->stream_synchronize(stream_), CUDA_SUCCESS);
    }

    bool is_full() const {
        return CudaDriver::get()->stream_query(stream_) == CUDA_ERROR_NOT_READY;
    }

private:
    /** By the copy engine, which works beside it. */
    void write_word(unsigned value) {
        *reinterpret_cast<volatile unsigned *>(source_.data()) = value;
        EXPECT_EQ(CudaDriver::get()->memcpy_async(device_pointer(word_.data()),
                                                  device_pointer(source_.data()), sizeof(value),
                                                  other_stream_),
                  CUDA_SUCCESS);
        EXPECT_EQ(CudaDriver::get()->stream_synchronize(other_stream_), CUDA_SUCCESS);
    }

    Buffer word_{MemoryKind::device, 64};
    Buffer source_{MemoryKind::pinned, 64};
    CUmodule module_ = nullptr;
    CUfunction spin_ = nullptr;
    CUstream stream_ = nullptr;
    CUstream other_stream_ = nullptr;
};

}  // namespace gpushm::test
