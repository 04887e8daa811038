// SPDX-License-Identifier: BSD-3-Clause
#include "touching.hpp"

#include "../../simcuda/touch_kernel.hpp"
#include "../figures.hpp"

#include <algorithm>

namespace gpushm::perf {
namespace {

constexpr size_t kRepetitions = 30;
constexpr size_t kMostBlocks = 256;

}  // namespace

Touching::Touching(const Driver &driver) : driver_(driver) {
    driver_.require(driver_.cuModuleLoadData(&module_, kTouchImage), "cuModuleLoadData");
    driver_.require(driver_.cuModuleGetFunction(&function_, module_, "simcuda_touch"),
                    "cuModuleGetFunction");
    driver_.require(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

Touching::~Touching() {
    driver_.cuStreamDestroy(stream_);
    driver_.cuModuleUnload(module_);
}

void Touching::launch(const PageRange &range) const {
    TouchedRange parameter = {device_pointer(range.address), range.bytes};
    void *parameters[] = {&parameter};
    const size_t pages = (range.bytes + kTouchedPage - 1) / kTouchedPage;
    const auto blocks = static_cast<unsigned>(
        std::clamp<size_t>((pages + kTouchThreads - 1) / kTouchThreads, 1, kMostBlocks));
    driver_.require(driver_.cuLaunchKernel(function_, blocks, 1, 1, kTouchThreads, 1, 1, 0, stream_,
                                           parameters, nullptr),
                    "cuLaunchKernel");
}

void Touching::touch(const std::vector<PageRange> &ranges, bool on_gpu) const {
    for (const PageRange &range : ranges) {
        if (on_gpu) {
            launch(range);
        } else {
            const volatile char *const bytes = range.address;
            for (size_t at = 0; at < range.bytes; at += kTouchedPage) {
                static_cast<void>(bytes[at]);
            }
        }
    }
    if (on_gpu) {
        driver_.require(driver_.cuStreamSynchronize(stream_), "the kernel that reads pages");
    }
}

double Touching::time_without_migration(const std::vector<PageRange> &ranges, bool on_gpu) const {
    std::vector<PageRange> read = ranges;
    if (on_gpu) {
        for (PageRange &range : read) {
            range.bytes = 0;
        }
    }
    touch(read, on_gpu);
    std::vector<double> times;
    for (size_t i = 0; i < kRepetitions; ++i) {
        const double start = now_us();
        touch(read, on_gpu);
        times.push_back(now_us() - start);
    }
    return figures_of(times, 1).median;
}

}  // namespace gpushm::perf
