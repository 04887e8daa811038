// SPDX-License-Identifier: BSD-3-Clause
// Which predefined datatypes are numbers that a GPU can reduce.
#pragma once

#include "core/reduction_kernel.hpp"
#include "openmpi/open_mpi_library.hpp"

#include <optional>

namespace gpushm::openmpi {

/** Notes the datatypes of `library`; to be called once, before the others. */
void find_element_types(const OpenMpiLibrary &library);

/** The numbers that a datatype consists of; none for one that was derived, and for those that GPUs do not know. */
std::optional<ElementType> element_type(const void *datatype);

}  // namespace gpushm::openmpi
