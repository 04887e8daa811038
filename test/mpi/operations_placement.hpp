// SPDX-License-Identifier: BSD-3-Clause
// Which kind of memory each buffer of an operation is in.
#pragma once

#include "cuda_driver.hpp"

#include <string>
#include <vector>

namespace gpushm::mpi_test::operations {

// What an operation does with a buffer: it only reads it, or it writes it.
enum class Role { source, destination };

struct Placement {
    std::string name;
    MemoryKind (*kind)(Role role, int rank);
};

// The placements of the names that --kinds takes; "mixed" stands for several. Throws
// std::runtime_error for any other name.
std::vector<Placement> make_placements(const std::vector<std::string> &names);

}  // namespace gpushm::mpi_test::operations
