// SPDX-License-Identifier: BSD-3-Clause
#include "app_kernel.hpp"

namespace gpushm::perf {
namespace {

constexpr unsigned kMaxThreads = 1024;

// For drivers from CUDA 11.4 on, as gpushm itself. %globaltimer counts nanoseconds, in steps of up
// to 1 us (PTX ISA, special registers).
constexpr char kImage[] = R"(
.version 7.4
.target sm_70
.address_size 64
.visible .entry gpushm_perf_spin(.param .u64 nanoseconds)
{
    .reg .u64 %limit, %start, %now;
    .reg .pred %more;
    ld.param.u64 %limit, [nanoseconds];
    setp.eq.u64 %more, %limit, 0;
    @%more bra ready;
    mov.u64 %start, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %more, %now, %limit;
    @%more bra again;
ready:
    ret;
}
)";

}  // namespace

AppKernel::AppKernel(const Driver &driver) : driver_(driver) {
    driver_.require(driver_.cuModuleLoadData(&module_, kImage), "cuModuleLoadData");
    if (driver_.simulated()) {
        void *word = nullptr;
        driver_.require(driver_.cuMemHostAlloc(&word, sizeof(*always_over_), 0), "cuMemHostAlloc");
        always_over_ = static_cast<unsigned *>(word);
        *always_over_ = 1;
    }
    driver_.require(driver_.cuModuleGetFunction(&function_, module_,
                                                always_over_ ? "simcuda_spin" : "gpushm_perf_spin"),
                    "cuModuleGetFunction");
    CUdevice device;
    int count = 0;
    if (driver_.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
        driver_.cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) ==
            CUDA_SUCCESS) {
        multiprocessors_ = static_cast<unsigned>(count);
    }
    int blocks = 0;
    if (driver_.cuOccupancyMaxActiveBlocksPerMultiprocessor != nullptr &&
        driver_.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, function_, static_cast<int>(kMaxThreads), 0) == CUDA_SUCCESS) {
        most_blocks_ = static_cast<unsigned>(blocks);
    }
}

AppKernel::~AppKernel() {
    driver_.cuModuleUnload(module_);
    driver_.cuMemFreeHost(always_over_);
}

void AppKernel::launch(CUstream stream, double us, unsigned blocks_per_multiprocessor,
                       unsigned threads) const {
    unsigned long long parameter = always_over_ != nullptr
                                       ? reinterpret_cast<unsigned long long>(always_over_)
                                       : static_cast<unsigned long long>(us * 1e3);
    void *parameters[] = {&parameter};
    driver_.require(driver_.cuLaunchKernel(function_, blocks_per_multiprocessor * multiprocessors_,
                                           1, 1, threads, 1, 1, 0, stream, parameters, nullptr),
                    "cuLaunchKernel");
}

void AppKernel::launch_cooperative(CUstream stream) const {
    unsigned long long parameter = 0;
    void *parameters[] = {&parameter};
    driver_.require(driver_.cuLaunchCooperativeKernel(function_, most_blocks_ * multiprocessors_, 1,
                                                      1, kMaxThreads, 1, 1, 0, stream, parameters),
                    "cuLaunchCooperativeKernel");
}

bool AppKernel::can_be_cooperative() const {
    return driver_.cuLaunchCooperativeKernel != nullptr && most_blocks_ > 0;
}

std::string AppKernel::note() const {
    return always_over_ != nullptr ? "simulated driver: the application's kernel ends at once" : "";
}

}  // namespace gpushm::perf
