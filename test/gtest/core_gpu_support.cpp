// SPDX-License-Identifier: BSD-3-Clause
#include "core_gpu_support.hpp"

#include "test/simcuda/simcuda.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace gpushm::test {
namespace {

FreshProcess *fresh_processes = nullptr;

void expect_ok(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        ADD_FAILURE() << what << ": " << CudaDriver::get()->error_name(result);
    }
}

CUdeviceptr device_pointer(const void *address) { return reinterpret_cast<CUdeviceptr>(address); }

}  // namespace

void *find_cuda(const char *symbol) {
    static void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    return library != nullptr ? dlsym(library, symbol) : nullptr;
}

// ---------------------------------------------------------------- the simulated driver

bool simulated() { return find_cuda("simcuda_set") != nullptr; }

unsigned long calls(const char *function) {
    return cuda_function<decltype(&simcuda_call_count)>("simcuda_call_count")(function);
}

unsigned long calls_of_all() {
    unsigned long sum = 0;
    for (const char *function :
         {"cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease",
          "cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxPushCurrent", "cuCtxPopCurrent",
          "cuCtxSetCurrent", "cuCtxGetId", "cuStreamCreate", "cuStreamDestroy",
          "cuStreamSynchronize", "cuStreamQuery", "cuEventCreate", "cuEventDestroy",
          "cuEventRecord", "cuEventQuery", "cuMemHostRegister", "cuMemHostUnregister", "cuMemcpy",
          "cuMemcpyAsync", "cuPointerGetAttribute", "cuPointerGetAttributes",
          "cuPointerSetAttribute"}) {
        sum += calls(function);
    }
    return sum;
}

void reset_calls() { cuda_function<decltype(&simcuda_reset_counts)>("simcuda_reset_counts")(); }

void set_simulation(const char *variable, const char *value) {
    const auto set = cuda_function<decltype(&simcuda_set)>("simcuda_set");
    EXPECT_EQ(set(variable, value), 0) << variable << "=" << value;
}

// ---------------------------------------------------------------- contexts

GpuTest::GpuTest() {
    expect_ok(cuda_.init(0), "cuInit");
    expect_ok(cuda_.device_primary_ctx_retain(&context_, 0), "cuDevicePrimaryCtxRetain");
    expect_ok(cuda_.ctx_push_current(context_), "cuCtxPushCurrent");
}

GpuTest::~GpuTest() {
    if (simulated()) {
        set_simulation("SIMCUDA_FAIL", "");
        set_simulation("SIMCUDA_DELAY_US", "5");
    }
    EXPECT_EQ(current_context(), context_) << "the test must end with the context it began with";
    CUcontext popped;
    cuda_.ctx_pop_current(&popped);
    EXPECT_EQ(current_context(), nullptr);
    cuda_.device_primary_ctx_release(0);
}

CUcontext current_context() {
    CUcontext context = nullptr;
    expect_ok(CudaDriver::get()->ctx_get_current(&context), "cuCtxGetCurrent");
    return context;
}

// ---------------------------------------------------------------- memory

Buffer::Buffer(MemoryKind kind, size_t length) : kind_(kind), length_(length) {
    const CudaDriver &cuda = *CudaDriver::get();
    CUdeviceptr address = 0;
    void *host = nullptr;
    switch (kind) {
    case MemoryKind::host:
        host = aligned_alloc(4096, (length + 4095) / 4096 * 4096);
        break;
    case MemoryKind::pinned:
        expect_ok(cuda_function<CUresult (*)(void **, size_t, unsigned)>("cuMemHostAlloc")(
                      &host, length, 0),
                  "cuMemHostAlloc");
        break;
    case MemoryKind::device:
        expect_ok(cuda.mem_alloc(&address, length), "cuMemAlloc");
        break;
    case MemoryKind::managed:
        expect_ok(cuda.mem_alloc_managed(&address, length, CU_MEM_ATTACH_GLOBAL),
                  "cuMemAllocManaged");
        break;
    }
    data_ = host != nullptr ? static_cast<unsigned char *>(host)
                            : reinterpret_cast<unsigned char *>(address);
}

Buffer::~Buffer() {
    if (kind_ == MemoryKind::host) {
        free(data_);
    } else if (kind_ == MemoryKind::pinned) {
        cuda_function<CUresult (*)(void *)>("cuMemFreeHost")(data_);
    } else {
        expect_ok(CudaDriver::get()->mem_free(device_pointer(data_)), "cuMemFree");
    }
}

void Buffer::fill(uint64_t seed) {
    std::vector<unsigned char> bytes(length_);
    fill_pattern(bytes.data(), length_, seed);
    if (kind_ == MemoryKind::device) {
        expect_ok(CudaDriver::get()->memcpy_sync(device_pointer(data_),
                                                 device_pointer(bytes.data()), length_),
                  "cuMemcpy");
        // From pageable memory it returns when the bytes are staged (CUDA driver API manual, "API
        // synchronization behavior").
        expect_ok(CudaDriver::get()->stream_synchronize(nullptr), "cuStreamSynchronize");
    } else {
        memcpy(data_, bytes.data(), length_);
    }
}

std::string Buffer::check(size_t begin, size_t length, uint64_t seed, uint64_t around) const {
    std::vector<unsigned char> bytes(length_);
    if (kind_ == MemoryKind::device) {
        expect_ok(CudaDriver::get()->memcpy_sync(device_pointer(bytes.data()),
                                                 device_pointer(data_), length_),
                  "cuMemcpy");
    } else {
        memcpy(bytes.data(), data_, length_);
    }
    const size_t wrong = pattern_mismatch(bytes.data() + begin, length, seed);
    if (wrong != length) {
        return "byte " + std::to_string(wrong) + " of " + std::to_string(length) + " is wrong";
    }
    std::vector<unsigned char> canaries(length_);
    fill_pattern(canaries.data(), length_, around);
    const bool before = memcmp(bytes.data(), canaries.data(), begin) == 0;
    const size_t end = begin + length;
    const bool after = memcmp(bytes.data() + end, canaries.data() + end, length_ - end) == 0;
    return before && after ? "" : "bytes around it changed";
}

// ---------------------------------------------------------------- processes

FreshProcess::FreshProcess(const char *name, int (*body)())
    : name_(name), body_(body), next_(fresh_processes) {
    fresh_processes = this;
}

int FreshProcess::run() const {
    Child child([this](const Channel &) {
        const std::string argument = std::string("--fresh=") + name_;
        execl("/proc/self/exe", "core_gpu_test", argument.c_str(), nullptr);
        return 127;
    });
    return child.reap();
}

int FreshProcess::run_named(int argc, char **argv) {
    for (const FreshProcess *process = fresh_processes; process != nullptr;
         process = process->next_) {
        if (argc == 2 && argv[1] == std::string("--fresh=") + process->name_) {
            return process->body_();
        }
    }
    return -1;
}

}  // namespace gpushm::test

int main(int argc, char **argv) {
    const int status = gpushm::test::FreshProcess::run_named(argc, argv);
    if (status >= 0) {
        return status;
    }
    testing::InitGoogleTest(&argc, argv);
    if (gpushm::CudaDriver::get() == nullptr) {
        fprintf(stderr, "skipped: no libcuda.so.1 on the library path\n");
        return 77;
    }
    return RUN_ALL_TESTS();
}
