// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations of UCP on GPU memory. MPI_Fetch_and_op and MPI_Compare_and_swap use them.
#pragma once

namespace gpushm::uct {

/** Call once, after UCX is registered and before it creates workers. */
void serve_atomics_on_gpu_memory();

}  // namespace gpushm::uct
