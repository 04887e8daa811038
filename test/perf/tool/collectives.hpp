// SPDX-License-Identifier: BSD-3-Clause
// Collective operations of MPI.
#pragma once

#include "cell.hpp"
#include "mpi_ranks.hpp"
#include "sampling.hpp"

#include "../driver.hpp"

#include <memory>

namespace gpushm::perf {

/** What is sent lies in memory of the kind `cell.from`, what is received in that of `cell.to`; the
 * buffer of a broadcast is of the first at the root, of the second at the others. `ranks` and
 * `driver` outlive the object. `driver` may be null for host memory. */
std::unique_ptr<Measurement> measure_collective(const Cell &cell, MpiRanks &ranks,
                                                const Driver *driver);

}  // namespace gpushm::perf
