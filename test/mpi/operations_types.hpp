// SPDX-License-Identifier: BSD-3-Clause
// The datatypes of the tests.
#pragma once

#include "operations_layout.hpp"

#include <string>
#include <vector>

namespace gpushm::mpi_test::operations {

// Types of the same signature: `send_unit` items of one hold what `receive_unit` items of the other
// hold.
struct TypePair {
    std::string name;
    LayoutPtr send;
    LayoutPtr receive;
    int send_unit = 1;
    int receive_unit = 1;
};

TypePair same_type(const LayoutPtr &layout);

LayoutPtr make_int();
LayoutPtr make_byte();
LayoutPtr make_contiguous();  // of ints
LayoutPtr make_vector();      // of ints, with gaps
LayoutPtr make_struct();      // of different types, with gaps

// The types with which every operation is tested ...
std::vector<TypePair> few_types();
// ... and all, for operations that stand for the others.
std::vector<TypePair> all_types();

// Layouts of int and double, of which external32 has the sizes that C has.
std::vector<TypePair> portable_types();

}  // namespace gpushm::mpi_test::operations
