// SPDX-License-Identifier: BSD-3-Clause
// Which generation of MPI there is.
#pragma once

#include <mpi.h>

// Open MPI 5.0 has the persistent collectives and the partitioned messages of MPI 4, though it
// claims only MPI 3.1.
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define GPUSHM_TEST_MPI4 1
#else
#define GPUSHM_TEST_MPI4 0
#endif

namespace gpushm::mpi_test::operations {

// Open MPI 4.1 has defects in one-sided operations that do not depend on where the memory is; what
// they hit is left out of the tests there.
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5
constexpr bool kOldOpenMpi = true;
#else
constexpr bool kOldOpenMpi = false;
#endif

}  // namespace gpushm::mpi_test::operations
