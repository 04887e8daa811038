// SPDX-License-Identifier: BSD-3-Clause
// For builds without nvcc.
#include "core/kernels/kernel_image.hpp"

namespace gpushm {

KernelImage kernel_fatbin() {
    return {nullptr, 0};
}

KernelImage kernel_ptx() {
    return {nullptr, 0};
}

}  // namespace gpushm
