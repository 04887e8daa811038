// SPDX-License-Identifier: BSD-3-Clause
// What every entry point does first: count itself, fail if a test asked for it, check that the
// driver is initialised and that the thread has a context.
#pragma once

#include "context.hpp"
#include "driver.hpp"
#include "stream_capture.hpp"
#include "trace.hpp"

#include <atomic>
#include <string>

namespace simcuda {

// One per entry point, a constant-initialised static of it.
class Call {
public:
    enum class Kind {
        plain,
        unsafe,  // "potentially unsafe" during a stream capture, see stream_capture.hpp
    };

    // `function`: its name without _v2 and the like.
    constexpr explicit Call(const char *function, Kind kind = Kind::plain)
        : function_(function), kind_(kind) {}

    // The main arguments, for SIMCUDA_TRACE.
    template <typename... Values>
    Call &given(Values... values) {
        (trace_argument(values), ...);
        return *this;
    }

    // For functions that work before cuInit. `body` takes nothing and runs without the lock.
    template <typename Body>
    CUresult always(Body body) {
        const CUresult injected = enter();
        const CUresult result = injected != CUDA_SUCCESS ? injected : body();
        if (tracing()) {
            write_trace(function_, result);
        }
        return result;
    }

    // For functions that need cuInit only. `body` takes the held lock.
    template <typename Body>
    CUresult initialised(Body body) {
        return always([&]() -> CUresult {
            const CUresult state = ready();
            if (state != CUDA_SUCCESS) {
                return state;
            }
            Lock lock(driver_mutex());
            if (kind_ == Kind::unsafe && !unsafe_call_permitted()) {
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            }
            return body(lock);
        });
    }

    // For functions that need a current context, which they get beside the held lock.
    template <typename Body>
    CUresult with_context(Body body) {
        return initialised([&](Lock &lock) -> CUresult {
            Context *context = nullptr;
            const CUresult state = current_context(&context);
            return state != CUDA_SUCCESS ? state : body(lock, *context);
        });
    }

private:
    friend unsigned long call_count(const std::string &function);
    friend void reset_counts();
    friend void write_counts();

    // Counts; the result is the failure that SIMCUDA_FAIL asks for, or CUDA_SUCCESS.
    CUresult enter();
    static CUresult ready();

    const char *const function_;
    const Kind kind_;
    std::atomic<unsigned long> count_{0};
    std::atomic<bool> listed_{false};
    Call *next_ = nullptr;  // written before the call is listed, never after
};

unsigned long call_count(const std::string &function);
void reset_counts();
void write_counts();

// "function:n:error[,function:n:error...]": the n-th call (1 is the first) from now on fails.
bool set_injected_failures(const std::string &rules);

// True in a thread while it runs a function of cuLaunchHostFunc or cuStreamAddCallback: it must not
// call the driver.
extern thread_local bool in_host_function;

}  // namespace simcuda
