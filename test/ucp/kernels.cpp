// SPDX-License-Identifier: BSD-3-Clause
#include "kernels.hpp"

#include "../simcuda/spin_kernel.hpp"
#include "check.hpp"

#include <time.h>

#include <algorithm>
#include <cstring>

namespace gpushm::ucp_test {
namespace {

// checksum: each of 256 threads of one block sums words times (2 * index + 1) and adds its sum to
// the result. The loads are volatile: nothing that a cache kept from before may be seen.
constexpr char kPtx[] = R"(
.version 7.0
.target sm_50
.address_size 64

.visible .entry checksum(.param .u64 data, .param .u64 words, .param .u64 result)
{
    .reg .pred %p;
    .reg .b32 %index32, %word, %factor, %sum;
    .reg .b64 %data, %words, %result, %index, %address;
    ld.param.u64 %data, [data];
    ld.param.u64 %words, [words];
    ld.param.u64 %result, [result];
    mov.u32 %index32, %tid.x;
    cvt.u64.u32 %index, %index32;
    mov.u32 %sum, 0;
next:
    setp.ge.u64 %p, %index, %words;
    @%p bra done;
    shl.b64 %address, %index, 2;
    add.u64 %address, %address, %data;
    ld.volatile.global.u32 %word, [%address];
    cvt.u32.u64 %factor, %index;
    shl.b32 %factor, %factor, 1;
    add.u32 %factor, %factor, 1;
    mad.lo.u32 %sum, %word, %factor, %sum;
    add.u64 %index, %index, 256;
    bra next;
done:
    red.global.add.u32 [%result], %sum;
    ret;
}
)";

constexpr unsigned kThreads = 256;

/** Null where the driver does not know it. */
CUfunction find_kernel(CUmodule module, const char *name) {
    CUfunction function = nullptr;
    const CUresult result = cuda().cuModuleGetFunction_(&function, module, name);
    if (result != CUDA_ERROR_NOT_FOUND) {
        require(result, "cuModuleGetFunction");
    }
    return function;
}

}  // namespace

uint32_t checksum_of(const void *data, size_t bytes) {
    uint32_t sum = 0;
    for (size_t i = 0; i < bytes / 4; ++i) {
        uint32_t word;
        std::memcpy(&word, static_cast<const char *>(data) + 4 * i, sizeof(word));
        sum += word * (2 * static_cast<uint32_t>(i) + 1);
    }
    return sum;
}

Kernels::Kernels() {
    const CudaApi &api = cuda();
    void *memory = nullptr;
    require(api.cuMemHostAlloc_(&memory, kResultBytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
    result_ = static_cast<uint32_t *>(memory);
    if (api.cuModuleLoadData_ == nullptr || api.cuModuleGetFunction_ == nullptr ||
        api.cuLaunchKernel_ == nullptr) {
        return;
    }
    require(api.cuModuleLoadData_(&module_, kPtx), "cuModuleLoadData");
    checksum_ = find_kernel(module_, "checksum");
    CUmodule spin = nullptr;
    require(api.cuModuleLoadData_(&spin, kSpinImage), "cuModuleLoadData");
    spin_ = find_kernel(spin, "simcuda_spin");
}

Kernels::~Kernels() {
    cuda().cuMemFreeHost_(result_);
}

uint32_t Kernels::checksum(const void *memory, size_t bytes) {
    const CudaApi &api = cuda();
    CUstream stream = nullptr;
    require(api.cuStreamCreate_(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    if (checksum_ != nullptr) {
        *result_ = 0;
        CUdeviceptr data = device_address(memory);
        uint64_t words = bytes / 4;
        CUdeviceptr result = device_address(result_);
        void *arguments[] = {&data, &words, &result};
        require(
            api.cuLaunchKernel_(checksum_, 1, 1, 1, kThreads, 1, 1, 0, stream, arguments, nullptr),
            "cuLaunchKernel");
    } else if (bytes > kResultBytes) {
        fail("the test checks at most %zu bytes", kResultBytes);
    } else {
        require(api.cuMemcpyAsync_(device_address(result_), device_address(memory), bytes, stream),
                "cuMemcpyAsync");
    }
    require(api.cuStreamSynchronize_(stream), "cuStreamSynchronize");
    require(api.cuStreamDestroy_(stream), "cuStreamDestroy");
    return checksum_ != nullptr ? *result_ : checksum_of(result_, bytes);
}

bool Kernels::wait_for_flag(CUstream stream, volatile uint32_t *flag) {
    const CudaApi &api = cuda();
    if (spin_ != nullptr) {
        launch_spin(stream, const_cast<const uint32_t *>(flag), 1, 1);
        return true;
    }
    if (api.cuLaunchHostFunc_ == nullptr) {
        return false;
    }
    const auto wait = [](void *word) {
        const auto *awaited = static_cast<volatile uint32_t *>(word);
        while (*awaited == 0) {
            const timespec pause = {0, 100000};
            nanosleep(&pause, nullptr);
        }
    };
    require(api.cuLaunchHostFunc_(stream, wait, const_cast<uint32_t *>(flag)), "cuLaunchHostFunc");
    return true;
}

void Kernels::fill_gpu(CUstream stream, const void *flag) {
    launch_spin(stream, flag, kFillingBlocks, kFillingThreads);
}

void Kernels::launch_spin(CUstream stream, const void *flag, unsigned grid, unsigned block) {
    CUdeviceptr address = device_address(flag);
    void *arguments[] = {&address};
    require(cuda().cuLaunchKernel_(spin_, grid, 1, 1, block, 1, 1, 0, stream, arguments, nullptr),
            "cuLaunchKernel");
}

}  // namespace gpushm::ucp_test
