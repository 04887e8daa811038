// SPDX-License-Identifier: BSD-3-Clause
// The word is copied to the CPU, changed, and copied back. The operations are atomic among
// themselves, as MPI and UCP promise. They are not atomic with accesses of kernels.
#include "uct_gpushm/gpu_atomics.hpp"

#include "core/base/log.hpp"
#include "core/copy/copy_any.hpp"
#include "core/memory/memory_query.hpp"
#include "uct_gpushm/abi/abi.hpp"

#include <cstdint>
#include <mutex>

namespace gpushm::uct {
namespace {

/** False: the request is for other memory. */
bool serve(const abi::AtomicRequest &request, const abi::RunAtomicAt &run_at) {
    if (query_memory(request.address).kind != MemoryKind::device) {
        return false;
    }
    // One mutex for all words, because several workers may serve requests at the same time.
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    alignas(8) uint64_t word = 0;
    const bool has_room = request.length <= sizeof(word);
    if (has_room && copy_any(&word, request.address, request.length) == Status::ok) {
        run_at(&word);
        if (copy_any(request.address, &word, request.length) == Status::ok) {
            return true;
        }
    }
    GPUSHM_LOG(
        error,
        "an atomic operation of a peer on %zu bytes of GPU memory at %p failed, and the peer "
        "may wait for ever: see the message before this one",
        request.length, request.address);
    return true;
}

}  // namespace

void serve_atomics_on_gpu_memory() {
    if (!abi::intercept_atomics(serve)) {
        GPUSHM_LOG(debug, "atomic operations on GPU memory are not available with this UCX");
    }
}

}  // namespace gpushm::uct
