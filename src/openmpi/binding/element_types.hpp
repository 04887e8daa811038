// SPDX-License-Identifier: BSD-3-Clause
// The predefined datatypes whose elements a GPU can reduce.
#pragma once

#include "core/kernels/reduction_kernel.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

#include <cstddef>
#include <optional>

namespace gpushm::openmpi {

/** Finds the datatypes of `library`. Call once, before the other function. */
void find_element_types(const OpenMpiLibrary &library);

/** The numbers that an element consists of. */
struct ElementNumbers {
    ElementType type;
    size_t count;  // 2: a complex number
};

/** Empty: GPUs do not compute the operation. They do not for derived datatypes, for long double,
 * and for complex numbers except sums, which are sums of their parts. */
std::optional<ElementNumbers> numbers_to_reduce(ReductionOperation operation, const void *datatype);

}  // namespace gpushm::openmpi
