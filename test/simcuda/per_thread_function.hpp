// SPDX-License-Identifier: BSD-3-Clause
// The forms of functions for programs whose default stream is that of the thread: cuX_ptds for
// those that name no stream, cuX_ptsz for those that do.
#pragma once

#include "stream.hpp"

#include <tuple>

namespace simcuda {

template <typename Function>
struct ArgumentsOf;
template <typename... Arguments>
struct ArgumentsOf<CUresult(Arguments...)> {
    using Types = std::tuple<Arguments...>;
};
template <typename Function, std::size_t which>
using Argument = std::tuple_element_t<which, typename ArgumentsOf<Function>::Types>;

template <typename... Arguments>
CUresult in_stream_of_thread(CUresult (*function)(Arguments...), Arguments... arguments) {
    const PerThreadDefault per_thread;
    return function(arguments...);
}

}  // namespace simcuda

// Their parameters and arguments, by how many there are.
#define SIMCUDA_ONE(f, n) simcuda::Argument<decltype(f), n> a##n
#define SIMCUDA_PARAMETERS_1(f) SIMCUDA_ONE(f, 0)
#define SIMCUDA_PARAMETERS_2(f) SIMCUDA_PARAMETERS_1(f), SIMCUDA_ONE(f, 1)
#define SIMCUDA_PARAMETERS_3(f) SIMCUDA_PARAMETERS_2(f), SIMCUDA_ONE(f, 2)
#define SIMCUDA_PARAMETERS_4(f) SIMCUDA_PARAMETERS_3(f), SIMCUDA_ONE(f, 3)
#define SIMCUDA_PARAMETERS_5(f) SIMCUDA_PARAMETERS_4(f), SIMCUDA_ONE(f, 4)
#define SIMCUDA_PARAMETERS_6(f) SIMCUDA_PARAMETERS_5(f), SIMCUDA_ONE(f, 5)
#define SIMCUDA_PARAMETERS_7(f) SIMCUDA_PARAMETERS_6(f), SIMCUDA_ONE(f, 6)
#define SIMCUDA_PARAMETERS_8(f) SIMCUDA_PARAMETERS_7(f), SIMCUDA_ONE(f, 7)
#define SIMCUDA_PARAMETERS_9(f) SIMCUDA_PARAMETERS_8(f), SIMCUDA_ONE(f, 8)
#define SIMCUDA_PARAMETERS_10(f) SIMCUDA_PARAMETERS_9(f), SIMCUDA_ONE(f, 9)
#define SIMCUDA_PARAMETERS_11(f) SIMCUDA_PARAMETERS_10(f), SIMCUDA_ONE(f, 10)
#define SIMCUDA_ARGUMENTS_1 a0
#define SIMCUDA_ARGUMENTS_2 SIMCUDA_ARGUMENTS_1, a1
#define SIMCUDA_ARGUMENTS_3 SIMCUDA_ARGUMENTS_2, a2
#define SIMCUDA_ARGUMENTS_4 SIMCUDA_ARGUMENTS_3, a3
#define SIMCUDA_ARGUMENTS_5 SIMCUDA_ARGUMENTS_4, a4
#define SIMCUDA_ARGUMENTS_6 SIMCUDA_ARGUMENTS_5, a5
#define SIMCUDA_ARGUMENTS_7 SIMCUDA_ARGUMENTS_6, a6
#define SIMCUDA_ARGUMENTS_8 SIMCUDA_ARGUMENTS_7, a7
#define SIMCUDA_ARGUMENTS_9 SIMCUDA_ARGUMENTS_8, a8
#define SIMCUDA_ARGUMENTS_10 SIMCUDA_ARGUMENTS_9, a9
#define SIMCUDA_ARGUMENTS_11 SIMCUDA_ARGUMENTS_10, a10

// Defines the form of `function` that has `form` behind its name.
#define SIMCUDA_PER_THREAD_FUNCTION(arguments, function, form)                        \
    extern "C" CUresult function##form(SIMCUDA_PARAMETERS_##arguments(function)) {    \
        return simcuda::in_stream_of_thread(function, SIMCUDA_ARGUMENTS_##arguments); \
    }
