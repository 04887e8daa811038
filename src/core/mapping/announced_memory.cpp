// SPDX-License-Identifier: BSD-3-Clause
#include "core/mapping/announced_memory.hpp"

#include "core/base/process.hpp"
#include "core/mapping/shareable_memory.hpp"
#include "core/reclaim/context_in_use.hpp"

#include <mutex>

namespace gpushm {
namespace {

constexpr size_t kBytes = 512;

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
        name = allocate_shareable(*in_use, kBytes);
    }
    const bool is_own = lock && name && name->owner == process_cookie().low;  // else the parent's
    return is_own ? name : std::nullopt;
}

}  // namespace gpushm
