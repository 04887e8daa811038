// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/one_sided/equivalent_type.hpp"

#include "openmpi/binding/mpi_call.hpp"
#include "openmpi/binding/opal_datatype.hpp"

#include <climits>
#include <cstddef>

namespace gpushm::openmpi {
namespace {

struct Functions {
    int (*create_hindexed)(int count, const int *lengths, const ptrdiff_t *displacements,
                           void *type, void **result);
    int (*contiguous)(int count, void *type, void **result);
    int (*commit)(void **type);
    int (*free)(void **type);
    int (*envelope)(void *type, int *integers, int *addresses, int *types, int *combiner);
};

Functions mpi;

constexpr int kCombinerNamed = 0;  // MPI_COMBINER_NAMED (ompi/include/mpi.h.in)

bool is_predefined(void *type) {
    int integers = 0;
    int addresses = 0;
    int types = 0;
    int combiner = kCombinerNamed;
    return mpi.envelope(type, &integers, &addresses, &types, &combiner) != kMpiSuccess ||
           combiner == kCombinerNamed;
}

}  // namespace

EquivalentType::~EquivalentType() {
    if (type_ != nullptr) {
        mpi.free(&type_);
    }
}

/** Leaves the operand if the datatype was not made. Open MPI then reports the error. */
void EquivalentType::take(int result, Operand *operand) {
    if (result == kMpiSuccess && mpi.commit(&type_) == kMpiSuccess) {
        operand->type = type_;
    }
}

void EquivalentType::begin_at_address(Operand *operand) {
    const OpalDatatype type(operand->type);
    if (operand->count == 0 || !type.is_committed() || type.true_lower_bound() == 0) {
        return;
    }
    const int one = 1;
    const ptrdiff_t lower = type.true_lower_bound();
    const ptrdiff_t displacement = -lower;
    take(mpi.create_hindexed(1, &one, &displacement, operand->type, &type_), operand);
    if (operand->type == type_) {
        operand->address = static_cast<const char *>(operand->address) + lower;
    }
}

void EquivalentType::make_one(Operand *operand) {
    const OpalDatatype type(operand->type);
    if (operand->count == 1 || operand->count > INT_MAX || !type.is_committed() ||
        is_predefined(operand->type)) {
        return;
    }
    take(mpi.contiguous(static_cast<int>(operand->count), operand->type, &type_), operand);
    if (operand->type == type_) {
        operand->count = 1;
    }
}

bool find_type_functions(const OpenMpiLibrary &library) {
    return library.mpi("PMPI_Type_create_hindexed", &mpi.create_hindexed) &&
           library.mpi("PMPI_Type_contiguous", &mpi.contiguous) &&
           library.mpi("PMPI_Type_commit", &mpi.commit) &&
           library.mpi("PMPI_Type_free", &mpi.free) &&
           library.mpi("PMPI_Type_get_envelope", &mpi.envelope);
}

}  // namespace gpushm::openmpi
