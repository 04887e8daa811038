// SPDX-License-Identifier: BSD-3-Clause
// KernelCode: loaded whole, once, or not at all.
#include "core/kernel_code.hpp"
#include "core_gpu_support.hpp"

namespace gpushm {
namespace {

using namespace test;

class KernelCodeTest : public GpuTest {
protected:
    void SetUp() override {
        if (!KernelCodes::possible()) {
            GTEST_SKIP() << "built without a CUDA compiler, or the driver has no kernels";
        }
    }
};

TEST_F(KernelCodeTest, HasAllKernelsOnceLoaded) {
    KernelCode code;
    EXPECT_EQ(code.function(Kernel::standby), nullptr);
    code.load(context_);
    for (const Kernel kernel : {Kernel::standby, Kernel::copy_rows, Kernel::reduce}) {
        EXPECT_NE(code.function(kernel), nullptr);
    }
}

TEST_F(KernelCodeTest, IsLoadedOnceAContext) {
    SKIP_UNLESS_SIMULATED();
    const unsigned long long id = cuda_.context_id(context_);
    const auto code = KernelCodes::instance().load(context_, id);
    reset_calls();
    EXPECT_EQ(KernelCodes::instance().load(context_, id), code);
    EXPECT_EQ(KernelCodes::instance().find(context_, id), code);
    EXPECT_EQ(calls("cuModuleLoadData"), 0u);
    EXPECT_EQ(KernelCodes::instance().find(context_, id + 1), nullptr);
}

/** PTX where the driver refuses machine code. */
TEST_F(KernelCodeTest, TakesTheOtherFormOfTheCode) {
    SKIP_UNLESS_SIMULATED();
    reset_calls();
    set_simulation("SIMCUDA_FAIL", "cuModuleLoadData:1:209");
    KernelCode code;
    code.load(context_);
    EXPECT_NE(code.function(Kernel::reduce), nullptr);
    EXPECT_EQ(calls("cuModuleLoadData"), 2u);
}

/** As a GPU without thread block clusters. */
TEST_F(KernelCodeTest, TheKernelForClustersMayBeMissing) {
    SKIP_UNLESS_SIMULATED();
    reset_calls();
    set_simulation("SIMCUDA_FAIL", "cuModuleGetFunction:2:500");  // CUDA_ERROR_NOT_FOUND
    KernelCode code;
    code.load(context_);
    set_simulation("SIMCUDA_FAIL", "");
    EXPECT_EQ(code.function(Kernel::standby_cluster), nullptr);
    for (const Kernel kernel : {Kernel::standby, Kernel::copy_rows, Kernel::reduce, Kernel::withdrawable_copy}) {
        EXPECT_NE(code.function(kernel), nullptr);
    }
}

TEST_F(KernelCodeTest, HasNothingWhenAPartIsMissing) {
    SKIP_UNLESS_SIMULATED();
    for (const char *failing : {"cuModuleLoadData:1:209,cuModuleLoadData:1:218",
                                "cuModuleGetFunction:1:500", "cuModuleGetFunction:2:999",
                                "cuModuleGetFunction:3:500",
                                "cuModuleGetGlobal:1:500"}) {
        reset_calls();
        set_simulation("SIMCUDA_FAIL", failing);
        KernelCode code;
        code.load(context_);
        for (const Kernel kernel : {Kernel::standby, Kernel::copy_rows, Kernel::reduce,
                                    Kernel::withdrawable_copy}) {
            EXPECT_EQ(code.function(kernel), nullptr) << failing;
        }
        EXPECT_FALSE(code.take_withdrawal()) << failing;
        set_simulation("SIMCUDA_FAIL", "");
    }
}

}  // namespace
}  // namespace gpushm
