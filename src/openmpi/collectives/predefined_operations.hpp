// SPDX-License-Identifier: BSD-3-Clause
// Replacements of the functions of MPI_SUM and the other predefined reduction operations.
#pragma once

#include "core/copy/reduced_arrivals.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

#include <cstddef>

namespace gpushm::openmpi {

/** Replaces the functions in Open MPI's tables. The replacements reduce on the GPU, or give Open
 * MPI's functions copies in host memory. Changes nothing, with one warning, if the tables have an
 * unknown layout. Does nothing if Open MPI has not filled the tables yet: call it again whenever
 * Open MPI may have done so. */
void replace_predefined_operations(const OpenMpiLibrary &library);

/** Whether GPUs compute this predefined MPI_Op on this MPI_Datatype. */
bool gpus_compute(const void *operation, const void *datatype);

/** Computes result[i] = first[i] `operation` second[i] for `count` elements on a GPU, and waits.
 * False: nothing was written, and the CPU has to compute it. True also if the GPU failed after it
 * may have changed the result; that is reported (FailureWatch). */
bool reduce_by_gpu(const void *operation, const void *datatype, void *result, const void *first,
                   const void *second, size_t count);

/** The reduction of `own` with as many elements that arrive from a peer, for an operation of
 * gpus_compute(). */
ArrivalReduction reduction_on_arrival(const void *operation, const void *datatype, const void *own,
                                      bool own_is_first, size_t count);

}  // namespace gpushm::openmpi
