// SPDX-License-Identifier: BSD-3-Clause
// Which predefined datatypes are numbers that a GPU can reduce.
#pragma once

#include "core/kernels/reduction_kernel.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

#include <cstddef>
#include <optional>

namespace gpushm::openmpi {

/** Notes the datatypes of `library`; to be called once, before the others. */
void find_element_types(const OpenMpiLibrary &library);

/** Of what an element consists. */
struct ElementNumbers {
    ElementType type;
    size_t count;  // 2: a complex number
};

/** None for what GPUs do not compute: datatypes that were derived, long double, and complex numbers
 * but for their sums, which are those of their parts. */
std::optional<ElementNumbers> numbers_to_reduce(ReductionOperation operation, const void *datatype);

}  // namespace gpushm::openmpi
