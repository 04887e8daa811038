// SPDX-License-Identifier: BSD-3-Clause
// The memory domain gpucpy: what lies at an address, GPU memory for UCP, and the copies that
// memory_copy_interface does.
#pragma once

#include "uct_gpushm/domains.hpp"

#include <memory>

namespace gpushm::uct {

/** There is a CUDA driver. The first one prepares the process: UCX's memory-type cache, the
 * driver's hooks. */
std::unique_ptr<Domain> make_memory_copy_domain();

}  // namespace gpushm::uct
