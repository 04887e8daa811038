// SPDX-License-Identifier: BSD-3-Clause
// All kernels, in one module.
#include "core/kernels/reduction_kernel.cu"
#include "core/kernels/row_copy_kernel.cu"
#include "core/kernels/standby_kernel.cu"
#include "core/kernels/cancellable_copy_kernel.cu"
