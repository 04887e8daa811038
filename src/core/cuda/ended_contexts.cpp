// SPDX-License-Identifier: BSD-3-Clause
#include "core/cuda/ended_contexts.hpp"

#include <pthread.h>

#include <mutex>
#include <new>

namespace gpushm {
namespace {

struct Ended {
    std::mutex mutex;
    std::map<CUcontext, unsigned long long> counts;  // drivers give few handles, again and again
};

/** Never destroyed. A forked child has not the thread that may have had the mutex, and no contexts.
 */
Ended *const ended = [] {
    static auto *made = new Ended;
    pthread_atfork(nullptr, nullptr, [] { new (made) Ended; });
    return made;
}();

}  // namespace

unsigned long long count_ended(CUcontext handle) {
    const std::lock_guard<std::mutex> lock(ended->mutex);
    const auto found = ended->counts.find(handle);
    return found != ended->counts.end() ? found->second : 0;
}

void note_end_of_context(CUcontext handle) {
    const std::lock_guard<std::mutex> lock(ended->mutex);
    ++ended->counts[handle];
}

}  // namespace gpushm
