// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations of UCP on GPU memory, as MPI_Fetch_and_op and MPI_Compare_and_swap use them.
#pragma once

namespace gpushm::uct {

/** To be called once a UCX is registered, before it makes workers. */
void serve_atomics_on_gpu_memory();

}  // namespace gpushm::uct
