// SPDX-License-Identifier: BSD-3-Clause
#include "core/cuda/ended_contexts.hpp"

#include "core/base/fork_safe.hpp"

#include <map>
#include <mutex>

namespace gpushm {
namespace {

struct Ended {
    std::mutex mutex;
    std::map<CUcontext, unsigned long long> counts;  // few: drivers use handles again
};

}  // namespace

unsigned long long count_ended(CUcontext handle) {
    Ended &ended = ForkSafe<Ended>::instance();
    const std::lock_guard<std::mutex> lock(ended.mutex);
    const auto found = ended.counts.find(handle);
    return found != ended.counts.end() ? found->second : 0;
}

void note_end_of_context(CUcontext handle) {
    Ended &ended = ForkSafe<Ended>::instance();
    const std::lock_guard<std::mutex> lock(ended.mutex);
    ++ended.counts[handle];
}

}  // namespace gpushm
