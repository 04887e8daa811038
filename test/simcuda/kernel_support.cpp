// SPDX-License-Identifier: BSD-3-Clause
// Kernels for the tests.
#include "kernel_support.hpp"

const char* const kSpinImage = R"(
.version 6.0
.target sm_60
.address_size 64
.visible .entry simcuda_spin(.param .u64 address)
{
    .reg .pred %zero;
    .reg .u32 %value;
    .reg .u64 %word;
    ld.param.u64 %word, [address];
    cvta.to.global.u64 %word, %word;
again:
    ld.volatile.global.u32 %value, [%word];
    setp.eq.u32 %zero, %value, 0;
    @%zero bra again;
    ret;
}
)";

LoadedKernel::LoadedKernel(const char* name, const char* image)
{
    EXPECT_CU(cu().cuModuleLoadData(&module_, image));
    EXPECT_CU(cu().cuModuleGetFunction(&function_, module_, name));
}

LoadedKernel::~LoadedKernel()
{
    EXPECT_CU(cu().cuModuleUnload(module_));
}
