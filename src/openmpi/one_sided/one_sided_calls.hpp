// SPDX-License-Identifier: BSD-3-Clause
// Replacements of MPI_Fetch_and_op and MPI_Compare_and_swap, for buffers in GPU memory, and of the
// calls that complete one-sided operations.
#pragma once

#include "openmpi/binding/no_throw_calls.hpp"

namespace gpushm::openmpi {

/** Open MPI reads and writes the elements of these operations with the CPU. The replacements pass
 * elements in host memory, and copy results to the GPU in the call that completes the operation. */
void redirect_one_sided_calls(const MpiTarget &target);

}  // namespace gpushm::openmpi
