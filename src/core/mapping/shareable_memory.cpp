// SPDX-License-Identifier: BSD-3-Clause
#include "core/mapping/shareable_memory.hpp"

#include "core/base/addresses.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/memory/memory_query.hpp"
#include "core/reclaim/deferred_free.hpp"

namespace gpushm {
namespace {

void free_later(const ContextInUse &context, CUdeviceptr address) {
    defer_free(context.context, context.id, [context, address] {
        const CudaDriver *driver = CudaDriver::get();
        const RelaxedCapture relaxed(driver);
        const CurrentContext current(driver, context.context, context.id);
        if (current.result() == CUDA_SUCCESS) {
            driver->mem_free(address);
        }
    });
}

}  // namespace

std::optional<BufferKey> allocate_shareable(const ContextInUse &context, size_t bytes) {
    const CudaDriver *driver = CudaDriver::get();
    if (driver == nullptr) {
        return std::nullopt;
    }
    const RelaxedCapture relaxed(driver);
    const CurrentContext current(driver, context.context, context.id);
    CUdeviceptr address = 0;
    if (current.result() != CUDA_SUCCESS || driver->mem_alloc(&address, bytes) != CUDA_SUCCESS) {
        return std::nullopt;
    }
    const BufferKey memory = make_buffer_key(look_up_memory(to_pointer(address)));
    if (!memory.can_be_mapped()) {
        free_later(context, address);
        return std::nullopt;
    }
    return memory;
}

void free_shareable(const ContextInUse &context, const BufferKey &memory) {
    free_later(context, memory.base);
}

}  // namespace gpushm
