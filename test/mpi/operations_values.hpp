// SPDX-License-Identifier: BSD-3-Clause
// Reductions whose values and results are known: predefined operations on predefined types, and
// operations of the program.
#pragma once

#include "operations_layout.hpp"

#include <mpi.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gpushm::mpi_test::operations {

struct Reduction {
    std::string name;  // "MPI_SUM of MPI_INT"
    MPI_Op op;
    LayoutPtr layout;

    // The stream of `count` values of a rank. They are such that no result is rounded, and that it
    // does not depend on the order of the operations where the operation is commutative.
    std::function<Bytes(int rank, int count)> values;

    // right = left op right, value by value.
    std::function<void(const Bytes &left, Bytes &right)> combine;

    std::shared_ptr<MPI_Op> owner;  // of an operation of the program
};

// The result over ranks [0, count of ranks) of values of `count` items.
Bytes reduce(const Reduction &reduction, int ranks, int count);

// Every predefined operation with every type of C that it is allowed for.
std::vector<Reduction> predefined_reductions();

// Commutative and not, on a predefined type and on a type with a gap.
std::vector<Reduction> user_reductions();

Reduction sum_of_ints();
Reduction maxloc_of_doubles();

}  // namespace gpushm::mpi_test::operations
