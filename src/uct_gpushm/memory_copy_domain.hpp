// SPDX-License-Identifier: BSD-3-Clause
// The memory domain "gpucopy": tells UCP the kind of memory at an address and allocates GPU memory
// for it. Its interface copies between memory kinds (memory_copy_interface.hpp).
#pragma once

#include "uct_gpushm/domain.hpp"

#include <memory>

namespace gpushm::uct {

/** Requires a CUDA driver. The first domain of a process turns UCX's memory-type cache off and
 * installs the hooks of driver functions. */
std::unique_ptr<Domain> make_memory_copy_domain();

}  // namespace gpushm::uct
