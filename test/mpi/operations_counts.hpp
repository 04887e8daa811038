// SPDX-License-Identifier: BSD-3-Clause
// How long the messages of the tests are.
#pragma once

#include "operations_trial.hpp"
#include "operations_types.hpp"

#include <vector>

namespace gpushm::mpi_test::operations {

enum class Largest { medium, large };

// Numbers of units of a pair of types: 1, 7, about 4000 B, and where asked for about 400000 B,
// which is above the thresholds of all rendezvous protocols.
std::vector<int> unit_counts(const Trial &trial, const TypePair &types,
                             Largest largest = Largest::medium);

// Other types may take one copy for each of their blocks.
inline Largest large_if_ints(const TypePair &types) {
    return types.name == "int" ? Largest::large : Largest::medium;
}

}  // namespace gpushm::mpi_test::operations
