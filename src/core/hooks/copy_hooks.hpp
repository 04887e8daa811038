// SPDX-License-Identifier: BSD-3-Clause
// Hooks of copies of the application that may have a side in host memory.
#pragma once

#include "core/cuda/driver_patch.hpp"

namespace gpushm {

/** The application finds what it finds with pageable memory, also where HostRegistrationCache has
 * page-locked a part of it. Copies that may return early are noted (early_returns.hpp). */
Hooks copy_hooks();

}  // namespace gpushm
