// SPDX-License-Identifier: BSD-3-Clause
// The members of Open MPI's reduction operation that gpushm reads and changes: ompi_op_t of
// ompi/op/op.h, equal in Open MPI 4.1, 5.0 and 6.0 except for the number of types.
#pragma once

#include "openmpi/binding/foreign_struct.hpp"

#include <cstddef>
#include <cstdint>

namespace gpushm::openmpi {

/** An ompi_op_t. Every MPI_Op handle of Open MPI points to one. */
class OmpiOperation : public ForeignStruct {
public:
    using ForeignStruct::ForeignStruct;

    /** The reference count of opal_object_t; 1: the next release destroys the operation. */
    int32_t references() const { return __atomic_load_n(reference_count(), __ATOMIC_ACQUIRE); }
    void add_reference() const { __atomic_fetch_add(reference_count(), 1, __ATOMIC_ACQ_REL); }
    bool is_predefined() const { return (flags() & 0x01) != 0; }  // OMPI_OP_FLAGS_INTRINSIC
    /** Whether its function gets Fortran handles, and counts of 64 bits (Open MPI 6.0). */
    bool takes_fortran_handles() const {
        return (flags() & 0x02) != 0;
    }                                                                // OMPI_OP_FLAGS_FORTRAN_FUNC
    bool takes_big_counts() const { return (flags() & 0x80) != 0; }  // OMPI_OP_FLAGS_BIGCOUNT
    /** Whether its function is called by the Java or C++ bindings. */
    bool has_other_language() const { return (flags() & 0x0c) != 0; }

    /** The function of an operation that is not predefined. */
    void **user_function() const { return words(); }

    /** The tables of a predefined operation with `types` types: functions with two and with three
     * buffers, and their modules. The function of a type that the operation does not permit is
     * null. */
    void **functions() const { return words(); }
    void **modules(size_t types) const { return words() + types; }
    void **three_buffer_functions(size_t types) const { return words() + 2 * types; }
    void **three_buffer_modules(size_t types) const { return words() + 3 * types; }

private:
    int32_t *reference_count() const { return reinterpret_cast<int32_t *>(at(8)); }
    uint32_t flags() const { return get<uint32_t>(84); }
    void **words() const { return reinterpret_cast<void **>(at(96)); }
};

}  // namespace gpushm::openmpi
