// SPDX-License-Identifier: BSD-3-Clause
// Datatypes that describe the same elements in another way, one that Open MPI's components for
// windows get right.
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"
#include "openmpi/one_sided/staged_transfer.hpp"

namespace gpushm::openmpi {

/** A committed datatype, freed by the destructor: operations under way keep what they need of it.
 */
class EquivalentType {
public:
    EquivalentType() {}
    ~EquivalentType();
    EquivalentType(const EquivalentType &) = delete;
    EquivalentType &operator=(const EquivalentType &) = delete;

    /** Has the elements of `*operand` begin at its address: Open MPI 4.1 and 5.0 take the address
     * itself for that of contiguous elements that they accumulate (osc_ucx_comm.c). */
    void begin_at_address(Operand *operand);

    /** Makes one element of several: Open MPI 4.1 counts the numbers of the first only
     * (osc_ucx_comm.c). */
    void make_one(Operand *operand);

private:
    void take(int result, Operand *operand);

    void *type_ = nullptr;
};

/** To be called once, before the others; false when this Open MPI lacks a function. */
bool find_type_functions(const OpenMpiLibrary &library);

}  // namespace gpushm::openmpi
