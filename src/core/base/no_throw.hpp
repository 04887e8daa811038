// SPDX-License-Identifier: BSD-3-Clause
// No exception passes a frame of C code: what UCX, the CUDA runtime and Open MPI call goes through
// one of these.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>

namespace gpushm {

/** Logs once that memory is short. Allocates nothing. */
void report_want_of_memory() noexcept;

/** Wraps `function` for C code. If it throws, memory was short: then the wrapper returns
 * `Failure::of<Result>()`. It calls `function` directly; a call that throws nothing costs nothing
 * more. The end of a thread by pthread_cancel(3), which also unwinds the stack, passes. */
template <auto function, typename Failure>
struct NoThrow;

template <typename Result, typename... Arguments, Result (*function)(Arguments...),
          typename Failure>
struct NoThrow<function, Failure> {
    static Result call(Arguments... arguments) {
        try {
            return function(arguments...);
        } catch (const std::exception &) {
            report_want_of_memory();
            return Failure::template of<Result>();
        }
    }
};

/** Returns what `action` returns, or what `otherwise` returns if memory was short for it. Other
 * exceptions pass. */
template <typename Action, typename Otherwise>
auto unless_short(Action action, Otherwise otherwise) -> decltype(action()) {
    try {
        return action();
    } catch (const std::bad_alloc &) {
    } catch (const std::length_error &) {  // of a container
    }
    return otherwise();
}

/** Runs an action that can be left undone when memory is short; false then. */
template <typename Action>
bool as_possible(Action action) {
    try {
        action();
        return true;
    } catch (const std::exception &) {
        report_want_of_memory();
        return false;
    }
}

}  // namespace gpushm
