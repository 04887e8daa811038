// SPDX-License-Identifier: BSD-3-Clause
// Datatypes that describe given elements in a way that Open MPI's components for windows handle
// correctly.
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"
#include "openmpi/one_sided/staged_transfer.hpp"

namespace gpushm::openmpi {

/** A committed datatype. The destructor frees it; operations in progress keep what they need of it.
 */
class EquivalentType {
public:
    EquivalentType() {}
    ~EquivalentType();
    EquivalentType(const EquivalentType &) = delete;
    EquivalentType &operator=(const EquivalentType &) = delete;

    /** Moves the address of `*operand` to its first element: Open MPI 4.1 and 5.0 accumulate
     * contiguous elements from the address itself (osc_ucx_comm.c). */
    void begin_at_address(Operand *operand);

    /** Combines several elements to one: Open MPI 4.1 counts only the numbers of the first element
     * (osc_ucx_comm.c). */
    void make_one(Operand *operand);

private:
    void take(int result, Operand *operand);

    void *type_ = nullptr;
};

/** Call once, before the other functions. False: this Open MPI lacks a function. */
bool find_type_functions(const OpenMpiLibrary &library);

}  // namespace gpushm::openmpi
