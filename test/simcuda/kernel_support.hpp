// SPDX-License-Identifier: BSD-3-Clause
// Kernels for the tests.
#pragma once

#include "spin_kernel.hpp"
#include "test_support.hpp"

// A module of the current context with one kernel of it, whose grid is a single thread.
class LoadedKernel {
public:
    explicit LoadedKernel(const char *name = "simcuda_spin", const char *image = kSpinImage);
    ~LoadedKernel();
    LoadedKernel(const LoadedKernel &) = delete;

    CUfunction function() const { return function_; }

    template <typename Parameter>
    CUresult launch(CUstream stream, Parameter parameter, unsigned blocks = 1,
                    unsigned threads = 1) const {
        void *parameters[] = {&parameter};
        return cu().cuLaunchKernel(function_, blocks, 1, 1, threads, 1, 1, 0, stream, parameters,
                                   nullptr);
    }

private:
    CUmodule module_ = nullptr;
    CUfunction function_ = nullptr;
};
