// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations of UCP on GPU memory: the word is brought to the CPU, changed and brought back.
// They are atomic among themselves, as MPI and UCP promise, and not with what kernels do to the
// word.
#include "uct_gpushm/gpu_atomics.hpp"

#include "core/base/log.hpp"
#include "core/copy/copy_any.hpp"
#include "core/memory/memory_query.hpp"
#include "uct_gpushm/abi/abi.hpp"

#include <cstdint>
#include <mutex>

namespace gpushm::uct {
namespace {

bool is_gpu_memory(const abi::AtomicRequest &request) {
    return query_memory(request.address).kind == MemoryKind::device;
}

void serve(const abi::AtomicRequest &request, abi::AtomicHandler &handler) {
    // Of all words: several workers may serve requests at the same time.
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    alignas(8) uint64_t word = 0;
    const bool has_room = request.length <= sizeof(word);
    if (has_room && copy_any(&word, request.address, request.length) == Status::ok) {
        handler.run_at(&word);
        if (copy_any(request.address, &word, request.length) == Status::ok) {
            return;
        }
    }
    GPUSHM_LOG(error,
               "an atomic operation of a peer on %zu bytes of GPU memory at %p failed: see the "
               "message before "
               "this one; the peer may wait for ever",
               request.length, request.address);
}

}  // namespace

void serve_atomics_on_gpu_memory() {
    if (!abi::intercept_atomics(is_gpu_memory, serve)) {
        GPUSHM_LOG(debug, "atomic operations on GPU memory are not available with this UCX");
    }
}

}  // namespace gpushm::uct
