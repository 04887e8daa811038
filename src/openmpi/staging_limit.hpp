// SPDX-License-Identifier: BSD-3-Clause
// From which size on Open MPI's data are collected in GPU memory.
#pragma once

#include <cstddef>

namespace gpushm::openmpi {

/** Bytes. Below, a message of a derived datatype goes in pieces by way of host memory, which takes less than two
 *  launches and a message between GPUs, and what a reduction needs for a while is in host memory. Thread safe. */
size_t staging_limit();
void set_staging_limit(size_t bytes);

}  // namespace gpushm::openmpi
