// SPDX-License-Identifier: BSD-3-Clause
// Replacements of MPI_Put, MPI_Get, MPI_Accumulate, MPI_Get_accumulate, and their forms with a
// request (doc/design/one-sided.md).
#pragma once

#include "openmpi/binding/no_throw_calls.hpp"

namespace gpushm::openmpi {

/** The calls that complete operations must call deliver_staged(). */
void redirect_one_sided_transfers(const MpiTarget &target);

}  // namespace gpushm::openmpi
