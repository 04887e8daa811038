// SPDX-License-Identifier: BSD-3-Clause
// Wrappers of functions that Open MPI and MPI programs call. They turn std::bad_alloc into an
// error.
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

/** For a function of MPI: calls the error handler and returns the error class. */
struct MpiFailure {
    template <typename Result>
    static Result of() {
        return report_want_of_memory_to_mpi();
    }
};

/** For a function of UCP, whose caller reports the error to MPI. A pointer is a ucs_status_ptr_t.
 */
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

/** For a function of OPAL or of a reduction operation. Some of their callers ignore the result, so
 * MPI's error handler is called. */
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

/** The function that Open MPI or a program calls in place of `function`. Other exceptions, which
 * only functions of the program throw (its error handler of MPI, for instance), pass through. */
template <auto function, typename Failure>
constexpr auto no_throw_call = &NoThrowCall<function, Failure>::call;

/** The function whose calls reach `replacement` instead. Null until it is redirected. */
template <auto replacement>
inline decltype(replacement) replaced_by = nullptr;

/** CallRedirection::add() with a wrapper of `replacement`. */
template <auto replacement, typename Failure>
void redirect_call(CallRedirection *redirection, const char *symbol,
                   const std::vector<std::string> &only_in = {}) {
    redirection->add(symbol, reinterpret_cast<void *>(no_throw_call<replacement, Failure>),
                     only_in);
}

/** A call of `symbol` for CallRedirection::add_all(), with a wrapper of `replacement`. */
template <auto replacement, typename Failure = UcpFailure>
ReplacedCall replaced_call(const char *symbol) {
    return {symbol, reinterpret_cast<void *>(no_throw_call<replacement, Failure>),
            reinterpret_cast<void **>(&replaced_by<replacement>)};
}

/** An Open MPI whose calls are redirected. */
struct MpiTarget {
    const OpenMpiLibrary &library;
    CallRedirection *redirection;

    /** redirect_mpi_function() with a wrapper of `replacement`, whose result is an error class. */
    template <auto replacement>
    bool redirect(const std::string &name) const {
        return redirect_mpi_function(
            library, redirection, name, reinterpret_cast<void **>(&replaced_by<replacement>),
            reinterpret_cast<void *>(no_throw_call<replacement, MpiFailure>));
    }
};

}  // namespace gpushm::openmpi
