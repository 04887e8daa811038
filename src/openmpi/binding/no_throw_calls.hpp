// SPDX-License-Identifier: BSD-3-Clause
// Functions of ours that Open MPI and MPI programs call: memory that is short is an error there,
// not an exception.
#pragma once

#include "core/base/no_throw.hpp"
#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/binding/gpu_memory.hpp"
#include "openmpi/binding/mpi_call.hpp"

#include <ucs/type/status.h>

#include <string>
#include <type_traits>
#include <vector>

namespace gpushm::openmpi {

/** Of a function of MPI: its error handler is called, and the error class returned. */
struct MpiFailure {
    template <typename Result>
    static Result of() {
        return report_want_of_memory_to_mpi();
    }
};

/** Of a function of UCP: its caller tells MPI. A pointer is a ucs_status_ptr_t. */
struct UcpFailure {
    template <typename Result>
    static Result of() {
        report_want_of_memory();
        if constexpr (std::is_same_v<Result, ucs_status_t>) {
            return UCS_ERR_NO_MEMORY;
        } else if constexpr (std::is_pointer_v<Result>) {
            return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
        } else {
            return Result();
        }
    }
};

/** Of a function of OPAL, or of an operation of MPI: some of its callers take it for something that
 * cannot fail, so MPI's error handler is called. */
struct OpalFailure {
    template <typename Result>
    static Result of() {
        if constexpr (std::is_void_v<Result>) {
            report_no_memory("reducing");
        } else {
            return report_no_memory("converting");
        }
    }
};

template <auto function, typename Failure>
struct NoThrowCall;

template <typename Result, typename... Arguments, Result (*function)(Arguments...),
          typename Failure>
struct NoThrowCall<function, Failure> {
    static Result call(Arguments... arguments) {
        return unless_short([&]() -> Result { return function(arguments...); },
                            &Failure::template of<Result>);
    }
};

/** What Open MPI, or a program, calls instead of `function`. What the program's own functions
 * throw, an error handler of MPI for instance, passes as without us. */
template <auto function, typename Failure>
constexpr auto no_throw_call = &NoThrowCall<function, Failure>::call;

/** CallRedirection::add(). */
template <auto replacement, typename Failure>
void redirect_call(CallRedirection *redirection, const char *symbol,
                   const std::vector<std::string> &only_in = {}) {
    redirection->add(symbol, reinterpret_cast<void *>(no_throw_call<replacement, Failure>),
                     only_in);
}

/** redirect_mpi_function() of a function whose result is an error class. */
template <auto replacement, typename Function>
bool redirect_mpi_call(const OpenMpiLibrary &library, CallRedirection *redirection,
                       const std::string &name, Function *original) {
    static_assert(
        std::is_same_v<Function,
                       std::remove_const_t<decltype(no_throw_call<replacement, MpiFailure>)>>,
        "it stands in the place of that");
    return redirect_mpi_function(library, redirection, name, reinterpret_cast<void **>(original),
                                 reinterpret_cast<void *>(no_throw_call<replacement, MpiFailure>));
}

}  // namespace gpushm::openmpi
