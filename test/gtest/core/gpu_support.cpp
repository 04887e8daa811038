// SPDX-License-Identifier: BSD-3-Clause
#include "test/gtest/core/gpu_support.hpp"

#include "core/kernels/kernel_code.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"
#include "core/reclaim/deferred_free.hpp"
#include "test/simcuda/simcuda.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace gpushm::test {
namespace {

FreshProcess *fresh_processes = nullptr;

void expect_ok(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        ADD_FAILURE() << what << ": " << CudaDriver::get()->error_name(result);
    }
}

CUdeviceptr device_pointer(const void *address) {
    return reinterpret_cast<CUdeviceptr>(address);
}

}  // namespace

void *find_cuda(const char *symbol) {
    static void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    return library != nullptr ? dlsym(library, symbol) : nullptr;
}

// ---------------------------------------------------------------- the simulated driver

bool simulated() {
    return find_cuda("simcuda_set") != nullptr;
}

unsigned long calls(const char *function) {
    return cuda_function<decltype(&simcuda_call_count)>("simcuda_call_count")(function);
}

unsigned long calls_of_all() {
    unsigned long sum = 0;
    for (const char *function : {"cuInit",
                                 "cuDeviceGet",
                                 "cuDeviceGetCount",
                                 "cuDeviceGetUuid",
                                 "cuDeviceGetAttribute",
                                 "cuDevicePrimaryCtxRetain",
                                 "cuDevicePrimaryCtxRelease",
                                 "cuDevicePrimaryCtxGetState",
                                 "cuCtxGetCurrent",
                                 "cuCtxGetDevice",
                                 "cuCtxPushCurrent",
                                 "cuCtxPopCurrent",
                                 "cuCtxSetCurrent",
                                 "cuCtxGetId",
                                 "cuStreamCreate",
                                 "cuStreamDestroy",
                                 "cuStreamSynchronize",
                                 "cuStreamQuery",
                                 "cuEventCreate",
                                 "cuEventDestroy",
                                 "cuEventRecord",
                                 "cuEventQuery",
                                 "cuMemHostRegister",
                                 "cuMemHostUnregister",
                                 "cuMemcpy",
                                 "cuMemcpyAsync",
                                 "cuMemcpyBatchAsync",
                                 "cuPointerGetAttribute",
                                 "cuPointerGetAttributes",
                                 "cuPointerSetAttribute",
                                 "cuThreadExchangeStreamCaptureMode",
                                 "cuIpcGetMemHandle",
                                 "cuIpcOpenMemHandle",
                                 "cuIpcCloseMemHandle",
                                 "cuMemRetainAllocationHandle",
                                 "cuMemExportToShareableHandle",
                                 "cuMemImportFromShareableHandle",
                                 "cuMemMap",
                                 "cuMemUnmap",
                                 "cuMemAddressReserve",
                                 "cuMemAddressFree",
                                 "cuMemSetAccess",
                                 "cuMemRelease"}) {
        sum += calls(function);
    }
    return sum;
}

unsigned long capture_mode_calls() {
    return find_cuda("cuThreadExchangeStreamCaptureMode") != nullptr ? 2 : 0;
}

bool await_background() {
    const auto last = std::make_shared<std::promise<void>>();  // may outlive this call
    run_in_background([last] { last->set_value(); });
    return last->get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready;
}

void reset_calls() {
    EXPECT_TRUE(await_background());
    cuda_function<decltype(&simcuda_reset_counts)>("simcuda_reset_counts")();
}

bool await_background_calls(const char *function, unsigned long count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (calls(function) < count && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::yield();
    }
    return await_background() && calls(function) == count;
}

void set_simulation(const char *variable, const char *value) {
    const auto set = cuda_function<decltype(&simcuda_set)>("simcuda_set");
    EXPECT_EQ(set(variable, value), 0) << variable << "=" << value;
}

// ---------------------------------------------------------------- contexts

GpuTest::GpuTest() {
    expect_ok(cuda_.init(0), "cuInit");
    expect_ok(cuda_.device_primary_ctx_retain(&context_, 0), "cuDevicePrimaryCtxRetain");
    expect_ok(cuda_.ctx_push_current(context_), "cuCtxPushCurrent");
    load_kernels(context_);
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

std::vector<unsigned char> contents_of(const Buffer &buffer, size_t length) {
    std::vector<unsigned char> bytes(length);
    EXPECT_EQ(CudaDriver::get()->memcpy_sync(device_pointer(bytes.data()),
                                             device_pointer(buffer.data()), length),
              CUDA_SUCCESS);
    return bytes;
}

CUcontext current_context() {
    CUcontext context = nullptr;
    expect_ok(CudaDriver::get()->ctx_get_current(&context), "cuCtxGetCurrent");
    return context;
}

// ---------------------------------------------------------------- memory

namespace {

using CreateMemory = CUresult (*)(CUmemGenericAllocationHandle *, size_t,
                                  const CUmemAllocationProp *, unsigned long long);
using GetGranularity = CUresult (*)(size_t *, const CUmemAllocationProp *,
                                    CUmemAllocationGranularity_flags);

CUdeviceptr create_and_map(size_t *length) {
    const CudaDriver &cuda = *CudaDriver::get();
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUdevice device = 0;
    expect_ok(cuda.ctx_get_device(&device), "cuCtxGetDevice");
    properties.location.id = device;
    size_t unit = 1;
    expect_ok(cuda_function<GetGranularity>("cuMemGetAllocationGranularity")(
                  &unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
              "cuMemGetAllocationGranularity");
    *length = (*length + unit - 1) / unit * unit;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    expect_ok(cuda_function<CreateMemory>("cuMemCreate")(&handle, *length, &properties, 0),
              "cuMemCreate");
    expect_ok(cuda.mem_address_reserve(&address, *length, 0, 0, 0), "cuMemAddressReserve");
    expect_ok(cuda.mem_map(address, *length, 0, handle, 0), "cuMemMap");
    expect_ok(cuda.mem_set_access(address, *length, &access, 1), "cuMemSetAccess");
    expect_ok(cuda.mem_release(handle), "cuMemRelease");
    return address;
}

}  // namespace

namespace {

constexpr size_t kPage = 4096;

size_t whole_pages(size_t length) {
    return (length + kPage - 1) / kPage * kPage;
}

/** A mapping of its own, with a page on either side that nobody may touch. */
void *map_host_memory(size_t length) {
    const size_t bytes = whole_pages(length);
    void *address = mmap(nullptr, bytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto *begin = static_cast<unsigned char *>(address) + kPage;
    if (address == MAP_FAILED || mprotect(begin, bytes, PROT_READ | PROT_WRITE) != 0) {
        abort();
    }
    return begin;
}

void unmap_host_memory(unsigned char *begin, size_t length) {
    munmap(begin - kPage, whole_pages(length) + 2 * kPage);
}

}  // namespace

const char *memory_kind_name(MemoryKind kind) {
    switch (kind) {
        case MemoryKind::host:
            return "host";
        case MemoryKind::pinned:
            return "pinned";
        case MemoryKind::device:
            return "device";
        case MemoryKind::managed:
            return "managed";
    }
    return "unknown";
}

bool Buffer::has_exportable() {
    return find_cuda("cuMemCreate") != nullptr &&
           CudaDriver::get()->mem_retain_allocation_handle != nullptr;
}

Buffer::Buffer(Allocator allocator, size_t length)
    : allocator_(allocator), length_(length), mapped_length_(length) {
    const CudaDriver &cuda = *CudaDriver::get();
    CUdeviceptr address = 0;
    void *host = nullptr;
    switch (allocator) {
        case Allocator::host:
            host = map_host_memory(length);
            break;
        case Allocator::pinned:
            expect_ok(cuda_function<CUresult (*)(void **, size_t, unsigned)>("cuMemHostAlloc")(
                          &host, length, 0),
                      "cuMemHostAlloc");
            break;
        case Allocator::device:
            expect_ok(cuda.mem_alloc(&address, length), "cuMemAlloc");
            break;
        case Allocator::managed:
            expect_ok(cuda.mem_alloc_managed(&address, length, CU_MEM_ATTACH_GLOBAL),
                      "cuMemAllocManaged");
            break;
        case Allocator::exportable:
            address = create_and_map(&mapped_length_);
            break;
        case Allocator::pool:
            expect_ok(cuda_function<CUresult (*)(CUdeviceptr *, size_t, CUstream)>(
                          "cuMemAllocAsync")(&address, length, nullptr),
                      "cuMemAllocAsync");
            expect_ok(cuda.stream_synchronize(nullptr), "cuStreamSynchronize");
            break;
    }
    data_ = host != nullptr ? static_cast<unsigned char *>(host)
                            : reinterpret_cast<unsigned char *>(address);
}

Buffer::~Buffer() {
    const CudaDriver &cuda = *CudaDriver::get();
    if (forgotten_) {
        return;
    }
    switch (allocator_) {
        case Allocator::host:
            unmap_host_memory(data_, length_);
            break;
        case Allocator::pinned:
            cuda_function<CUresult (*)(void *)>("cuMemFreeHost")(data_);
            break;
        case Allocator::device:
        case Allocator::managed:
            expect_ok(cuda.mem_free(device_pointer(data_)), "cuMemFree");
            break;
        case Allocator::exportable:
            expect_ok(cuda.mem_unmap(device_pointer(data_), mapped_length_), "cuMemUnmap");
            expect_ok(cuda.mem_address_free(device_pointer(data_), mapped_length_),
                      "cuMemAddressFree");
            break;
        case Allocator::pool:
            expect_ok(cuda_function<CUresult (*)(CUdeviceptr, CUstream)>("cuMemFreeAsync")(
                          device_pointer(data_), nullptr),
                      "cuMemFreeAsync");
            break;
    }
}

/** Whether the CPU may read and write it. */
bool Buffer::is_host() const {
    return allocator_ != Allocator::device && allocator_ != Allocator::exportable &&
           allocator_ != Allocator::pool;
}

void Buffer::fill(uint64_t seed) {
    std::vector<unsigned char> bytes(length_);
    fill_pattern(bytes.data(), length_, seed);
    if (!is_host()) {
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

void Buffer::move_to_gpu() {
    // A copy to device memory moves what it reads.
    const Buffer device(MemoryKind::device, length_);
    expect_ok(CudaDriver::get()->memcpy_sync(device_pointer(device.data_), device_pointer(data_),
                                             length_),
              "cuMemcpy");
    expect_ok(CudaDriver::get()->stream_synchronize(nullptr), "cuStreamSynchronize");
}

void Buffer::forget() {
    forgotten_ = true;
}

std::string Buffer::check(size_t begin, size_t length, uint64_t seed, uint64_t around) const {
    std::vector<unsigned char> bytes(length_);
    if (!is_host()) {
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

CUcontext enter_primary_context(CUdevice device) {
    const CudaDriver &cuda = *CudaDriver::get();
    CUcontext context = nullptr;
    const bool entered = cuda.init(0) == CUDA_SUCCESS &&
                         cuda.device_primary_ctx_retain(&context, device) == CUDA_SUCCESS &&
                         cuda.ctx_push_current(context) == CUDA_SUCCESS;
    return entered ? context : nullptr;
}

CUcontext make_context() {
    CUcontext made = nullptr;
    CUcontext popped = nullptr;
    EXPECT_EQ(
        cuda_function<CUresult (*)(CUcontext *, unsigned, CUdevice)>("cuCtxCreate_v2")(&made, 0, 0),
        CUDA_SUCCESS);
    EXPECT_EQ(CudaDriver::get()->ctx_pop_current(&popped), CUDA_SUCCESS);
    return made;
}

void destroy_context(CUcontext context) {
    EXPECT_EQ(cuda_function<CUresult (*)(CUcontext)>("cuCtxDestroy_v2")(context), CUDA_SUCCESS);
}

bool load_kernels(CUcontext context) {
    return KernelCodes::instance().load(context, CudaDriver::get()->context_id(context)) != nullptr;
}

size_t count_free_pinned_buffer_pool() {
    PinnedBufferPool &blocks = PinnedBufferPool::instance();
    std::vector<void *> taken;
    for (void *block = blocks.take(); block != nullptr; block = blocks.take()) {
        taken.push_back(block);
    }
    for (void *block : taken) {
        blocks.give_back(block);
    }
    return taken.size();
}

// ---------------------------------------------------------------- processes

std::shared_ptr<StandbyKernel> fresh_kernel(uint32_t beat_ns, uint32_t life_ns,
                                            StandbyConfig::Mode mode) {
    const CUcontext context = enter_primary_context(0);
    if (context == nullptr) {
        return nullptr;
    }
    StandbyKernels &kernels = StandbyKernels::instance();
    kernels.configure({mode, beat_ns, life_ns});
    kernels.prepare(context);
    return kernels.find(context, CudaDriver::get()->context_id(context));
}

FreshProcess::FreshProcess(const char *name, int (*body)())
    : name_(name), body_(body), next_(fresh_processes) {
    fresh_processes = this;
}

int FreshProcess::run() const {
    Child child([this](const Channel &) {
        const std::string argument = std::string("--fresh=") + name_;
        // The parent may use its GPUs, and have the claim of one.
        setenv("SIMCUDA_NODE", std::to_string(getpid()).c_str(), 1);
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

BusyGpu::BusyGpu(unsigned microseconds) {
    EXPECT_EQ(CudaDriver::get()->stream_create(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    set_simulation("SIMCUDA_DELAY_US", std::to_string(microseconds).c_str());
    EXPECT_EQ(CudaDriver::get()->memcpy_async(device_pointer(to_.data()),
                                              device_pointer(from_.data()), 4096, stream_),
              CUDA_SUCCESS);
}

BusyGpu::~BusyGpu() {
    others_are_fast();
    CudaDriver::get()->stream_destroy(stream_);
}

void BusyGpu::others_are_fast() {
    set_simulation("SIMCUDA_DELAY_US", "5");
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
