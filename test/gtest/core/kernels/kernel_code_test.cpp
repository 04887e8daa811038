// SPDX-License-Identifier: BSD-3-Clause
// KernelCode: loaded whole, once, or not at all.
#include "core/kernels/kernel_code.hpp"
#include "test/gtest/core/gpu_support.hpp"

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

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

/** Whether `object` goes within the time of what is done in the background. */
template <typename Object>
bool goes(const std::weak_ptr<Object> &object) {
    return await_background() && object.expired();
}

/** In KiB, of the mappings that a forked child does not have the contents of: those of
 * StandbyControls. Neighbours are one mapping or two, as the kernel of the operating system likes,
 * so it does not matter how many there are. */
size_t wiped_on_fork() {
    std::ifstream mappings("/proc/self/smaps");
    std::string line;
    size_t size = 0;
    size_t sum = 0;
    while (std::getline(mappings, line)) {
        if (line.compare(0, 5, "Size:") == 0) {
            size = std::stoul(line.substr(5));
        } else if (line.find(" wf ") != std::string::npos) {
            sum += size;
        }
    }
    return sum;
}

FreshProcess many_contexts("kernels-of-many-contexts", [] {
    CHECK(fresh_kernel(200'000, 1'000'000) != nullptr);
    std::weak_ptr<StandbyKernel> last_kernel;
    std::weak_ptr<const KernelCode> last_code;
    size_t of_one = 0;
    for (int i = 0; i < 10; ++i) {
        const CUcontext context = make_context();
        const unsigned long long id = CudaDriver::get()->context_id(context);
        StandbyKernels::instance().prepare(context);
        // What was prepared before belongs to a context that has ended.
        CHECK(goes(last_kernel) && goes(last_code));
        last_kernel = StandbyKernels::instance().find(context, id);
        last_code = KernelCodes::instance().find(context, id);
        CHECK(!last_kernel.expired() && !last_code.expired());
        of_one = i == 0 ? wiped_on_fork() : of_one;
        destroy_context(context);
    }
    CHECK(of_one > 0 && wiped_on_fork() == of_one);  // the last one's
    return 0;
});

TEST_F(KernelCodeTest, NothingIsKeptOfContextsThatHaveEnded) {
    EXPECT_EQ(many_contexts.run(), 0);
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
    for (const Kernel kernel :
         {Kernel::standby, Kernel::copy_rows, Kernel::reduce, Kernel::cancellable_copy}) {
        EXPECT_NE(code.function(kernel), nullptr);
    }
}

TEST_F(KernelCodeTest, HasNothingWhenAPartIsMissing) {
    SKIP_UNLESS_SIMULATED();
    for (const char *failing :
         {"cuModuleLoadData:1:209,cuModuleLoadData:1:218", "cuModuleGetFunction:1:500",
          "cuModuleGetFunction:2:999", "cuModuleGetFunction:3:500", "cuModuleGetGlobal:1:500"}) {
        reset_calls();
        set_simulation("SIMCUDA_FAIL", failing);
        KernelCode code;
        code.load(context_);
        for (const Kernel kernel :
             {Kernel::standby, Kernel::copy_rows, Kernel::reduce, Kernel::cancellable_copy}) {
            EXPECT_EQ(code.function(kernel), nullptr) << failing;
        }
        EXPECT_FALSE(code.take_cancellation()) << failing;
        const bool had_module =
            strncmp(failing, "cuModuleLoadData", strlen("cuModuleLoadData")) != 0;
        EXPECT_EQ(calls("cuModuleUnload"), had_module ? 1u : 0u) << failing;
        set_simulation("SIMCUDA_FAIL", "");
    }
}

}  // namespace
}  // namespace gpushm
