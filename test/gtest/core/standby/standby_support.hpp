// SPDX-License-Identifier: BSD-3-Clause
// A standby kernel of a test, and a process that waits for messages beside it.
#pragma once

#include "core/base/monotonic_clock.hpp"
#include "core/kernels/kernel_image.hpp"
#include "core/standby/standby_kernel.hpp"
#include "test/gtest/core/gpu_support.hpp"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace gpushm::test {

constexpr std::chrono::seconds kPatience{20};

class StandbyKernelTest : public GpuTest {
protected:
    void SetUp() override {
        if (!cuda_.has_kernels() || kernel_fatbin().data == nullptr) {
            GTEST_SKIP() << "built without a CUDA compiler, or the driver has no kernels";
        }
    }

    void make(const StandbyConfig &config) {
        kernel_ = std::make_shared<StandbyKernel>(context_, cuda_.context_id(context_), config);
        kernel_->load();
    }

    /** Does what a process does that waits for messages, until `condition`; false when it takes too
     * long. */
    template <typename Condition>
    bool tend_until(Condition condition) {
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (!condition()) {
            kernel_->note_copy();
            kernel_->tend(StandbyKernel::Moment::idle, true, monotonic_nanoseconds());
            if (std::chrono::steady_clock::now() > end) {
                return false;
            }
        }
        return true;
    }
    bool await_life() {
        return tend_until([this] { return kernel_->alive(); });
    }

    std::shared_ptr<StandbyKernel> kernel_;
};

/** fresh_kernel() whose kernel stays though this thread has to wait for a processor. */
inline std::shared_ptr<StandbyKernel> lasting_kernel() {
    setenv("SIMCUDA_KERNEL_TIME_SCALE", "100000", 1);
    constexpr uint32_t kLong = 1'000'000'000;
    return fresh_kernel(kLong, kLong);
}

/** The result of a body whose kernel was not where it was to be. */
constexpr int kTryAgain = 4;

inline int run_until_it_counts(const FreshProcess &process) {
    int result = kTryAgain;
    for (int attempt = 0; attempt < 20 && result == kTryAgain; ++attempt) {
        result = process.run();
    }
    return result;
}

}  // namespace gpushm::test
