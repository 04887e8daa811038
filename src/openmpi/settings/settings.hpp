// SPDX-License-Identifier: BSD-3-Clause
// From which size on Open MPI's data are collected in GPU memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpushm::openmpi {

/** Bytes. Below, a message of a derived datatype goes in pieces by way of host memory, which takes
 * less than two launches and a message between GPUs, and small collective operations go by way of
 * host memory altogether (small_collectives.hpp). Thread safe. */
size_t staging_limit();
/** Nothing is ever collected in GPU memory, nor are parts of reductions there. */
constexpr size_t kNoStaging = SIZE_MAX;
void set_staging_limit(size_t bytes);

}  // namespace gpushm::openmpi
