// SPDX-License-Identifier: BSD-3-Clause
// All kernels, in one module.
#include "core/reduction_kernel.cu"
#include "core/row_copy_kernel.cu"
#include "core/standby_kernel.cu"
#include "core/withdrawable_copy_kernel.cu"
