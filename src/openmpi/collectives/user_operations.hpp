// SPDX-License-Identifier: BSD-3-Clause
// Reduction operations of the application (MPI_Op_create). Their functions expect host memory.
#pragma once

#include "openmpi/binding/no_throw_calls.hpp"

namespace gpushm::openmpi {

/** From now on, functions of created operations are called with copies in host memory in place of
 * buffers in GPU memory. */
void redirect_user_operations(const MpiTarget &target);

}  // namespace gpushm::openmpi
