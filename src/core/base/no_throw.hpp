// SPDX-License-Identifier: BSD-3-Clause
// No exception passes a frame of C: what C code calls, UCX, the CUDA runtime and Open MPI, goes
// through one of these.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>

namespace gpushm {

/** Says once that memory is short. Allocates nothing. */
void report_want_of_memory() noexcept;

/** A function for C code that does what `function` does. If that throws, memory was short: then it
 * returns what `Failure::of<Result>()` says. Calls `function` directly; a call that throws nothing
 * costs nothing more. The end of a thread by pthread_cancel(3), which unwinds the stack, too,
 * passes. */
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

/** What `action` returns; what `otherwise` does if memory was short for it. All else that it throws
 * passes. */
template <typename Action, typename Otherwise>
auto unless_short(Action action, Otherwise otherwise) -> decltype(action()) {
    try {
        return action();
    } catch (const std::bad_alloc &) {
    } catch (const std::length_error &) {  // of a container
    }
    return otherwise();
}

/** Does what can be left undone when memory is short; false then. */
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
