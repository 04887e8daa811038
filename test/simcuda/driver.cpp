// SPDX-License-Identifier: BSD-3-Clause
// cuInit, cuDriverGetVersion, and what a fork does to the driver.
#include "driver.hpp"

#include "call.hpp"
#include "device.hpp"

#include <atomic>
#include <pthread.h>

namespace simcuda {

namespace {

enum class State { uninitialised, initialised, forked };
std::atomic<State> state{State::uninitialised};

constexpr int kDriverVersion = 13000;

void after_fork_in_child() {
    if (state.load(std::memory_order_relaxed) == State::initialised) {
        state.store(State::forked, std::memory_order_relaxed);
    }
    reset_counts();
    forget_trace_file();
}

__attribute__((constructor)) void watch_forks() {
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
}

}  // namespace

std::mutex &driver_mutex() {
    static std::mutex &mutex = *new std::mutex;
    return mutex;
}

CUresult driver_state() {
    return state.load(std::memory_order_acquire) == State::initialised ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuInit(unsigned int flags) {
    static Call call{"cuInit"};
    return call.given(flags).always([&]() -> CUresult {
        if (state.load(std::memory_order_relaxed) == State::forked) {
            return CUDA_ERROR_NOT_INITIALIZED;
        }
        if (flags != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        Lock lock(driver_mutex());
        if (!find_devices(lock)) {
            return CUDA_ERROR_NO_DEVICE;
        }
        state.store(State::initialised, std::memory_order_release);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuDriverGetVersion(int *version) {
    static Call call{"cuDriverGetVersion"};
    return call.always([&]() -> CUresult {
        if (version == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *version = kDriverVersion;
        return CUDA_SUCCESS;
    });
}
