// SPDX-License-Identifier: BSD-3-Clause
// What core/kernels/cancellable_copy_kernel.cu does on a GPU, by one thread for all blocks.
#include "core/kernels/cancellable_copy_kernel.hpp"

#include "engine.hpp"
#include "kernel.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace simcuda {

namespace {

using gpushm::CancellableCopy;
using gpushm::Cancellation;

bool is_valid(const CancellableCopy &copy) {
    return copy.length > 0 && copy.blocks > 0 && copy.cancellation % alignof(Cancellation) == 0;
}

// Whether the copy is to be made: all blocks begin at once, and the first one decides. `valid`: it
// was the first one that the CPU meant.
bool begin(const CancellableCopy &copy, Cancellation *state, bool *valid) {
    auto *cancelled_and_begun = reinterpret_cast<std::uint64_t *>(&state->cancelled);
    const std::uint64_t before =
        __atomic_fetch_add(cancelled_and_begun, std::uint64_t{copy.blocks} << 32, __ATOMIC_RELAXED);
    *valid = static_cast<std::uint32_t>(before >> 32) == copy.begun_before;
    const bool cancelled = gpushm::is_cancelled(static_cast<std::uint32_t>(before), copy.number);
    const std::uint32_t wanted = cancelled ? state->wanted : copy.number;
    __atomic_store_n(reinterpret_cast<std::uint64_t *>(&state->decided),
                     std::uint64_t{wanted} << 32 | copy.number, __ATOMIC_RELAXED);
    return !cancelled;
}

// Lets go of the lock for as long as a copy takes, or until another failure took the context away.
void take_time(Lock &lock, const Context &context, std::size_t bytes) {
    const auto end = Clock::now() + Engine::get().transfer_time(bytes);
    lock.unlock();
    for (auto now = Clock::now(); now < end && context.sticky_error == CUDA_SUCCESS;
         now = Clock::now()) {
        std::this_thread::sleep_until(std::min(end, now + std::chrono::milliseconds(1)));
    }
    lock.lock();
}

}  // namespace

CUresult run_cancellable_copy(Lock &lock, Context &context, const void *parameter) {
    CancellableCopy copy;
    std::memcpy(&copy, parameter, sizeof(copy));
    Span words;
    CUresult result =
        find_kernel_memory(copy.cancellation, sizeof(Cancellation), true, context, &words);
    if (result != CUDA_SUCCESS || !is_valid(copy)) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_LAUNCH_FAILED;
    }
    Span from;
    const auto find_source = [&] {
        return find_kernel_memory(copy.source, copy.length, false, context, &from);
    };
    result = copy.asks_first == 0 ? find_source() : CUDA_SUCCESS;
    bool valid = false;
    if (!begin(copy, reinterpret_cast<Cancellation *>(words.access()), &valid)) {
        return valid ? result : CUDA_ERROR_LAUNCH_FAILED;
    }
    Span to;
    if (copy.asks_first != 0) {
        result = find_source();
    }
    if (result == CUDA_SUCCESS) {
        result = find_kernel_memory(copy.destination, copy.length, true, context, &to);
    }
    if (result != CUDA_SUCCESS || !valid) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_LAUNCH_FAILED;
    }
    take_time(lock, context, copy.length);
    char *target = to.access();
    const char *source = from.access();
    if (target == nullptr || source == nullptr) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;  // freed meanwhile
    }
    lock.unlock();
    std::memcpy(target, source, copy.length);
    lock.lock();
    return CUDA_SUCCESS;
}

}  // namespace simcuda
