// SPDX-License-Identifier: BSD-3-Clause
// Requests of MPI_Imrecv, which know their communicator.
#pragma once

#include "openmpi/binding/no_throw_calls.hpp"

namespace gpushm::openmpi {

/** pml/ucx of Open MPI 4.1 and 5.0 leaves a request of MPI_Imrecv without a communicator
 * (mca_pml_ucx_imrecv): where Open MPI looks at it, as it does for an error and in 5.0 in
 * MPI_Waitall, the program crashes. From now on the request has the communicator of its message. */
void redirect_matched_receives(const MpiTarget &target);

}  // namespace gpushm::openmpi
