// SPDX-License-Identifier: BSD-3-Clause
// Dynamic windows of osc/ucx with any number of attached regions (doc/design/dynamic-windows.md).
#pragma once

#include "openmpi/binding/no_throw_calls.hpp"

namespace gpushm::openmpi {

/** Nothing in an Open MPI or a UCX that lacks one of the functions. */
void redirect_dynamic_windows(const MpiTarget &target);

}  // namespace gpushm::openmpi
