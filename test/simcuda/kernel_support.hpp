// SPDX-License-Identifier: BSD-3-Clause
// Kernels for the tests.
#pragma once

#include "test_support.hpp"

// A kernel "simcuda_spin" that runs until the word whose address it is given is not 0, see
// Gate::word. The simulation knows it by its name; this is PTX for a real GPU.
extern const char* const kSpinImage;

// A module of the current context with one kernel of it, whose grid is a single thread.
class LoadedKernel {
public:
    explicit LoadedKernel(const char* name = "simcuda_spin", const char* image = kSpinImage);
    ~LoadedKernel();
    LoadedKernel(const LoadedKernel&) = delete;

    CUfunction function() const { return function_; }

    template <typename Parameter>
    CUresult launch(CUstream stream, Parameter parameter) const
    {
        void* parameters[] = {&parameter};
        return cu().cuLaunchKernel(function_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
    }

private:
    CUmodule module_ = nullptr;
    CUfunction function_ = nullptr;
};
