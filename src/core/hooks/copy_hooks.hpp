// SPDX-License-Identifier: BSD-3-Clause
// Copies of the application that may have a side in host memory.
#pragma once

#include "core/cuda/driver_patch.hpp"

#include <vector>

namespace gpushm {

/** Where we have page-locked a part of the host memory, the application finds what it finds of
 * pageable memory. Those that may return early are noted (early_returns.hpp). */
const std::vector<Hook> &copy_hooks();

}  // namespace gpushm
