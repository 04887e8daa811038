// SPDX-License-Identifier: BSD-3-Clause
#include "core/mapping/announced_memory.hpp"

#include "core/base/process.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/reclaim/context_preparation.hpp"

#include <mutex>

namespace gpushm {
namespace {

constexpr size_t kBytes = 512;

/** Never gone: it ends with the context. */
std::optional<BufferName> allocate() {
    const CudaDriver *driver = CudaDriver::get();
    const std::optional<ContextInUse> in_use = context_in_use();
    if (driver == nullptr || !in_use) {
        return std::nullopt;
    }
    const RelaxedCapture relaxed(driver);
    const CurrentContext current(driver, in_use->context, in_use->id);
    CUdeviceptr address = 0;
    if (current.result() != CUDA_SUCCESS || driver->mem_alloc(&address, kBytes) != CUDA_SUCCESS) {
        return std::nullopt;
    }
    const BufferName name = name_buffer(look_up_memory(reinterpret_cast<const void *>(address)));
    return name.can_be_mapped() ? std::optional<BufferName>(name) : std::nullopt;
}

}  // namespace

std::optional<BufferName> announced_memory() {
    static std::mutex mutex;
    static bool tried = false;
    static std::optional<BufferName> name;
    if (!is_any_context_in_use()) {
        return std::nullopt;
    }
    // A child may be forked while another thread has it.
    const std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
    if (lock && !tried) {
        tried = true;
        name = allocate();
    }
    const bool is_own = lock && name && name->owner == process_cookie().low;  // else the parent's
    return is_own ? name : std::nullopt;
}

}  // namespace gpushm
