// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/reduction.hpp"

#include "core/copy/copy_any.hpp"
#include "core/copy/engine_pool.hpp"
#include "core/copy/reduction_launch.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/memory/memory_query.hpp"
#include "core/pinning/device_buffer_pool.hpp"
#include "core/reclaim/context_lifetime.hpp"

#include <cstdint>
#include <optional>

namespace gpushm {
namespace {

/** An operand of a reduction, in memory that the GPU of the result reaches. */
class Operand {
public:
    Operand(CopyEngine &engine, const MemoryInfo &gpu_side, const void *address, size_t bytes)
        : address_(engine.is_in_reach(gpu_side, address, bytes) ? address : nullptr) {
        // From here on the GPU is quicker, with the copy: doc/decisions/copy-reductions.md.
        constexpr size_t kMinCopied = 32u << 10;
        if (address_ == nullptr && bytes >= kMinCopied) {
            block_.emplace(bytes, gpu_side);
            const bool copied = block_->address() != nullptr &&
                                copy_any(block_->address(), address, bytes) == Status::ok;
            address_ = copied ? block_->address() : nullptr;
        }
    }
    /** Null: the GPU does not reach it. */
    const void *address() const { return address_; }

    /** A kernel whose end is not known reads it. */
    void leave() {
        if (block_) {
            block_->leave();
        }
    }

private:
    const void *address_;
    std::optional<DeviceBlock> block_;
};

GpuReduction reduce(CopyEngine &engine, const MemoryInfo &info, ReductionOperation operation,
                    ElementType type, void *result, const void *first, const void *second,
                    size_t count) {
    const size_t bytes = count * element_bytes(type);
    const CopyEngine::Scope scope(engine);
    const ContextLifetimeLock contexts_alive(
        ContextLifetimeLock::Mode::alive_shared);  // in which operands may be page-locked
    if (!contexts_alive || !engine.is_in_reach(info, result, bytes)) {
        return GpuReduction::left_to_cpu;
    }
    Operand left(engine, info, first, bytes);
    Operand right(engine, info, second, bytes);
    if (left.address() == nullptr || right.address() == nullptr ||
        !is_aligned(left.address(), type) || !is_aligned(right.address(), type)) {
        return GpuReduction::left_to_cpu;
    }
    ReductionParameters parameters = {device_pointer(result),
                                      device_pointer(left.address()),
                                      device_pointer(right.address()),
                                      count,
                                      operation,
                                      type};
    switch (engine.run(info, {reduction_launch(&parameters)})) {
        case KernelsEnd::ran:
            return GpuReduction::done;
        case KernelsEnd::refused:
            return GpuReduction::left_to_cpu;
        case KernelsEnd::unknown:
            break;
    }
    left.leave();
    right.leave();
    return GpuReduction::lost;
}

}  // namespace

bool is_reduction(ReductionOperation operation, ElementType type) {
    const bool floating = type == ElementType::float32 || type == ElementType::float64;
    return !floating || operation <= ReductionOperation::prod;
}

bool gpu_can_reduce(const MemoryInfo &gpu_side) {
    return has_kernel(gpu_side, Kernel::reduce);
}

GpuReduction reduce_on_gpu(ReductionOperation operation, ElementType type, void *result,
                           const void *first, const void *second, size_t count) {
    const MemoryInfo info = query_memory(result);
    if (count == 0 || !is_reduction(operation, type) || !is_aligned(result, type) ||
        !gpu_can_reduce(info)) {
        return GpuReduction::left_to_cpu;
    }
    BorrowedEngine engine;
    const GpuReduction end = reduce(*engine, info, operation, type, result, first, second, count);
    if (end == GpuReduction::lost) {
        engine.discard();
    }
    return end;
}

}  // namespace gpushm
