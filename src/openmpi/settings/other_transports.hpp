// SPDX-License-Identifier: BSD-3-Clause
// Whether UCX can read GPU memory without us.
#pragma once

namespace gpushm::openmpi {

/** Whether another component of this UCX, or a network adapter, may read or write GPU memory; also
 * when that cannot be told. To be asked once UCX has loaded its components; costs nothing the
 * second time. Thread safe. */
bool others_reach_gpu_memory();

}  // namespace gpushm::openmpi
