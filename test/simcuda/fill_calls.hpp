// SPDX-License-Identifier: BSD-3-Clause
// The calls by which programs fill device memory from the device, each with its forms.
#pragma once

#include "test_support.hpp"

#include <ostream>

// What a call works on.
struct FillBuffers {
    static constexpr std::size_t kBytes = 1 << 20;

    CUdeviceptr to;
    CUdeviceptr from;  // not read by a memset
    CUcontext context;
};

struct FillCall {
    std::string symbol;           // of the form for programs with the legacy default stream
    std::string per_thread_form;  // what is behind it in the other form
    Bytes pattern;                // that a memset repeats; empty for a copy

    // Calls the function, in the stream if it takes one.
    CUresult (*run)(void *function, const FillBuffers &buffers, CUstream stream);

    bool synchronous() const { return per_thread_form == "_ptds"; }
    std::string name() const;  // without version
    Bytes expected(const Bytes &from) const;
};

// For Google Test.
void PrintTo(const FillCall &call, std::ostream *output);

const std::vector<FillCall> &fill_calls();
