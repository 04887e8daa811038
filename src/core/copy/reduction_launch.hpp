// SPDX-License-Identifier: BSD-3-Clause
// The launch of the reduction kernel.
#pragma once

#include "core/copy/copy_types.hpp"
#include "core/kernels/reduction_kernel.hpp"

namespace gpushm {

/** The launch refers to the parameters. */
KernelLaunch reduction_launch(ReductionParameters *parameters);

}  // namespace gpushm
