// SPDX-License-Identifier: BSD-3-Clause
#include "core/mapping/announced_memory.hpp"

#include "core/base/addresses.hpp"
#include "core/base/process.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/memory/memory_query.hpp"
#include "core/reclaim/deferred_free.hpp"
#include "core/reclaim/context_in_use.hpp"

#include <mutex>

namespace gpushm {
namespace {

constexpr size_t kBytes = 512;

/** Not at once, because the driver would wait for all work of the context. */
void free_later(const ContextInUse &in_use, CUdeviceptr address) {
    defer_free(in_use.context, in_use.id, [in_use, address] {
        const CudaDriver *driver = CudaDriver::get();
        const RelaxedCapture relaxed(driver);
        const CurrentContext current(driver, in_use.context, in_use.id);
        if (current.result() == CUDA_SUCCESS) {
            driver->mem_free(address);
        }
    });
}

/** Memory that can be mapped; it ends with the context. */
std::optional<BufferKey> allocate(const ContextInUse &in_use) {
    const CudaDriver *driver = CudaDriver::get();
    if (driver == nullptr) {
        return std::nullopt;
    }
    const RelaxedCapture relaxed(driver);
    const CurrentContext current(driver, in_use.context, in_use.id);
    CUdeviceptr address = 0;
    if (current.result() != CUDA_SUCCESS || driver->mem_alloc(&address, kBytes) != CUDA_SUCCESS) {
        return std::nullopt;
    }
    const BufferKey name = make_buffer_key(look_up_memory(to_pointer(address)));
    if (!name.can_be_mapped()) {
        free_later(in_use, address);
        return std::nullopt;
    }
    return name;
}

}  // namespace

std::optional<BufferKey> announced_memory() {
    static std::mutex mutex;
    static std::optional<unsigned long long> tried;  // in the context with this id
    static std::optional<BufferKey> name;
    const std::optional<ContextInUse> in_use = context_in_use();
    if (!in_use) {
        return std::nullopt;
    }
    // A child may be forked while another thread has it.
    const std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
    if (lock && tried != in_use->id) {
        tried = in_use->id;
        name = allocate(*in_use);
    }
    const bool is_own = lock && name && name->owner == process_cookie().low;  // else the parent's
    return is_own ? name : std::nullopt;
}

}  // namespace gpushm
