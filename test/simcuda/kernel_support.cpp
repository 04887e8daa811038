// SPDX-License-Identifier: BSD-3-Clause
// Kernels for the tests.
#include "kernel_support.hpp"

LoadedKernel::LoadedKernel(const char *name, const char *image) {
    EXPECT_CU(cu().cuModuleLoadData(&module_, image));
    EXPECT_CU(cu().cuModuleGetFunction(&function_, module_, name));
}

LoadedKernel::~LoadedKernel() {
    EXPECT_CU(cu().cuModuleUnload(module_));
}
