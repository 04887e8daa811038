// SPDX-License-Identifier: BSD-3-Clause
#include "core/reclaim/context_in_use.hpp"

#include "core/base/fork_safe.hpp"
#include "core/cuda/cuda_driver.hpp"

#include <mutex>

namespace gpushm {
namespace {

struct Used {
    std::mutex mutex;
    std::optional<ContextInUse> context;  // guarded by it
};

}  // namespace

std::optional<ContextInUse> context_in_use() {
    Used &used = ForkSafe<Used>::instance();
    const std::lock_guard<std::mutex> lock(used.mutex);
    return used.context;
}

void note_context_in_use(CUcontext context) {
    const CudaDriver *driver = CudaDriver::get();
    Used &used = ForkSafe<Used>::instance();
    const std::lock_guard<std::mutex> lock(used.mutex);
    if (!used.context || !driver->context_is_alive(used.context->context, used.context->id)) {
        used.context = ContextInUse{context, driver->context_id(context)};
    }
}

}  // namespace gpushm
