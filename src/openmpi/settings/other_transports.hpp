// SPDX-License-Identifier: BSD-3-Clause
// Whether UCX can access GPU memory without gpushm.
#pragma once

namespace gpushm::openmpi {

/** Whether another component of this UCX, or a network adapter, may access GPU memory. True also if
 * the answer cannot be found. Call it when UCX has loaded its components; only the first call takes
 * time. Thread safe. */
bool others_reach_gpu_memory();

}  // namespace gpushm::openmpi
