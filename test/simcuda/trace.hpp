// SPDX-License-Identifier: BSD-3-Clause
// SIMCUDA_TRACE: a line for each call, in the order in which the calls return.
#pragma once

#include "cuda_declarations.hpp"

#include <cstdint>

namespace simcuda {

bool tracing();

// Adds an argument of the call that the thread makes, or what that gives back. Without effect
// unless tracing.
void trace_value(const char *separator, std::uintptr_t value);

template <typename Value>
void trace_argument(Value value) {
    trace_value(" ", (std::uintptr_t)value);  // a C cast: a pointer, an enumerator or a number
}

template <typename Value>
void trace_result(Value value) {
    trace_value(" -> ", (std::uintptr_t)value);
}

// Writes the line of the call.
void write_trace(const char *function, CUresult result);

// The child of a fork opens a file of its own.
void forget_trace_file();

}  // namespace simcuda
