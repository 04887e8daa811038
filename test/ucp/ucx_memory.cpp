// SPDX-License-Identifier: BSD-3-Clause
// GPU memory that UCX allocates: for itself, when it looks for a way, and for the application
// (ucp_mem_map).
#include "check.hpp"
#include "kernels.hpp"
#include "standby_support.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

namespace gpushm::ucp_test {
namespace {

constexpr ucs_memory_type_t kTypes[] = {UCS_MEMORY_TYPE_CUDA, UCS_MEMORY_TYPE_CUDA_MANAGED};

/** Of the allocation at an address; 0 if there is none. */
unsigned long long buffer_id(const void *address) {
    unsigned long long id = 0;
    const CUresult result =
        cuda().cuPointerGetAttribute_(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, device_address(address));
    return result == CUDA_SUCCESS ? id : 0;
}

/** An allocation, alive or not: its address may have become another one. */
struct Trace {
    const void *address;
    unsigned long long id;
    bool alive() const { return buffer_id(address) == id; }
};

/** For some seconds nobody minds that it is still there. */
void expect_end(const Trace &trace, const char *what) {
    const double deadline = now_seconds() + kMaxSeconds;
    while (trace.alive()) {
        if (now_seconds() > deadline) {
            fail("%s is not freed", what);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

class UcxMemory {
public:
    UcxMemory(const Context &context, ucs_memory_type_t type, size_t bytes) : context_(context) {
        ucp_mem_map_params_t parameters = {};
        parameters.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                UCP_MEM_MAP_PARAM_FIELD_FLAGS | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
        parameters.length = bytes;
        parameters.flags = UCP_MEM_MAP_ALLOCATE;
        parameters.memory_type = type;
        require(ucp_mem_map(context.get(), &parameters, &memory_), "ucp_mem_map");
        ucp_mem_attr_t attributes = {};
        attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
        require(ucp_mem_query(memory_, &attributes), "ucp_mem_query");
        trace_ = {attributes.address, buffer_id(attributes.address)};
        if (trace_.id == 0) {
            fail("UCX has allocated other memory");
        }
    }
    ~UcxMemory() { require(ucp_mem_unmap(context_.get(), memory_), "ucp_mem_unmap"); }
    UcxMemory(const UcxMemory &) = delete;
    UcxMemory &operator=(const UcxMemory &) = delete;
    const Trace &trace() const { return trace_; }

private:
    const Context &context_;
    ucp_mem_h memory_ = nullptr;
    Trace trace_ = {};
};

std::unique_ptr<Context> new_context() {
    return std::make_unique<Context>(ContextSettings{UCP_FEATURE_TAG | UCP_FEATURE_RMA, false});
}

/** A byte, as UCX itself allocates; nobody waits until it is freed, not at its end either. */
void while_the_gpu_is_full() {
    set_activity("UCX allocates and frees a byte while all of the GPU waits");
    Kernels kernels;
    if (!kernels.can_wait()) {
        printf("this driver runs no kernel that waits\n");
        return;
    }
    Allocation word(Allocator::pinned, sizeof(uint32_t));
    auto *const flag = reinterpret_cast<volatile uint32_t *>(word.data());
    *flag = 0;
    CUstream stream = nullptr;
    require(cuda().cuStreamCreate_(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    std::vector<Trace> traces;
    {
        std::unique_ptr<Context> context = new_context();
        const Watchdog watchdog("UCX frees memory, while kernels of the application fill the GPU");
        kernels.fill_gpu(stream, word.data());
        for (int round = 0; round < 4; ++round) {
            for (ucs_memory_type_t type : kTypes) {
                traces.push_back(UcxMemory(*context, type, 1).trace());
            }
        }
        context.reset();
        if (cuda().cuStreamQuery_(stream) != CUDA_ERROR_NOT_READY) {
            fail("the kernel of the application does not wait");
        }
        *flag = 1;
        require(cuda().cuStreamSynchronize_(stream), "cuStreamSynchronize");
    }
    for (const Trace &trace : traces) {
        expect_end(trace, "a byte of UCX");
    }
    require(cuda().cuStreamDestroy_(stream), "cuStreamDestroy");
}

/** What the application frees by UCX, and can have use for, is free at once. */
void of_the_application() {
    set_activity("memory of the application from UCX");
    constexpr size_t kCount = 500;
    constexpr size_t kMaxKept = 100;
    std::unique_ptr<Context> context = new_context();
    for (ucs_memory_type_t type : kTypes) {
        for (size_t bytes : {size_t{4} << 10, size_t{1} << 20}) {
            const Trace trace = UcxMemory(*context, type, bytes).trace();
            if (trace.alive()) {
                fail("%zu bytes are still there when they are freed", bytes);
            }
        }
    }
    std::vector<std::unique_ptr<UcxMemory>> small;
    std::vector<Trace> traces;
    for (size_t i = 0; i < kCount; ++i) {
        small.push_back(std::make_unique<UcxMemory>(*context, kTypes[i % 2], 8));
        traces.push_back(small.back()->trace());
    }
    small.clear();
    const auto kept = static_cast<size_t>(
        std::count_if(traces.begin(), traces.end(), [](const Trace &one) { return one.alive(); }));
    if (kept > kMaxKept) {
        fail("%zu of %zu allocations are still there when they are freed", kept, kCount);
    }
    context.reset();
    for (const Trace &trace : traces) {
        expect_end(trace, "what the context kept");  // before a reset, that is: SmallBlocks
    }
}

/** Its memory goes with the context, and what comes at its address afterwards is the application's.
 */
void across_a_reset() {
    set_activity("UCX frees a byte, and the device is reset");
    std::unique_ptr<Context> context = new_context();
    std::vector<Trace> gone;
    auto freed_later = std::make_unique<UcxMemory>(*context, UCS_MEMORY_TYPE_CUDA, 1);
    gone.push_back(freed_later->trace());
    for (int i = 0; i < 3; ++i) {
        gone.push_back(UcxMemory(*context, UCS_MEMORY_TYPE_CUDA, 1).trace());
    }
    reset_device(0);
    use_device(0);
    std::vector<std::unique_ptr<Allocation>> own;
    std::vector<Trace> traces;
    for (size_t i = 0; i < 64; ++i) {
        own.push_back(std::make_unique<Allocation>(Allocator::device, 1));
        traces.push_back({own.back()->data(), buffer_id(own.back()->data())});
    }
    if (std::none_of(traces.begin(), traces.end(),
                     [&](const Trace &trace) { return trace.address == gone.back().address; })) {
        printf("no address came again after a reset\n");
    }
    freed_later.reset();
    context.reset();
    // What is freed later is freed behind all that was to be freed before.
    context = new_context();
    const Trace last = UcxMemory(*context, UCS_MEMORY_TYPE_CUDA, 1).trace();
    context.reset();
    expect_end(last, "a byte of UCX");
    for (const Trace &trace : traces) {
        if (!trace.alive()) {
            fail("memory of the application was freed");
        }
    }
}

}  // namespace

void allocated_by_ucx(Peer &) {
    use_device(0);
    while_the_gpu_is_full();
    of_the_application();
    across_a_reset();
}

}  // namespace gpushm::ucp_test
