// SPDX-License-Identifier: BSD-3-Clause
// Replacements of MPI's file operations, for buffers in GPU memory.
#pragma once

#include "openmpi/binding/no_throw_calls.hpp"

namespace gpushm::openmpi {

/** Passes copies in host memory to MPI-IO, whose system calls cannot access GPU memory. Nonblocking
 * operations on GPU memory are complete when they return. */
void redirect_file_calls(const MpiTarget &target);

}  // namespace gpushm::openmpi
