// SPDX-License-Identifier: BSD-3-Clause
// The code of the kernels (kernels.cu), as the driver's cuModuleLoadData takes it.
//
// src/core/kernels/kernel_image.sh writes the definitions when gpushm is built. A build without
// nvcc has those of no_kernel_image.cpp, and its config.h does not define HAVE_KERNELS.
#pragma once

#include <cstddef>

namespace gpushm {

struct KernelImage {
    const unsigned char *data;  // null: there is none
    size_t size;                // bytes
};

/** Machine code for GPUs from sm_75 on (sm_70 where the compiler is older than CUDA 13). A driver
 * of an older major version of CUDA than the compiler's may refuse it. Not compressed. */
KernelImage kernel_fatbin();

/** PTX, ended by a zero byte: for drivers from CUDA 11.4 on, which compile it for any GPU from
 * sm_75 (sm_70) on. */
KernelImage kernel_ptx();

}  // namespace gpushm
