// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/binding/element_types.hpp"

#include "core/copy/reduction.hpp"
#include "openmpi/binding/opal_datatype.hpp"

#include <array>
#include <unordered_map>

namespace gpushm::openmpi {
namespace {

enum class Numbers { with_sign, without_sign, floating, complex };

struct Known {
    const char *symbol;
    Numbers numbers;
};

// Without MPI_UNSIGNED_LONG, which Open MPI compares as signed, and MPI_OFFSET, which it compares
// as unsigned (ompi/op/op.c of 4.1 and 5.0).
constexpr Known kKnown[] = {{"ompi_mpi_signed_char", Numbers::with_sign},
                            {"ompi_mpi_unsigned_char", Numbers::without_sign},
                            {"ompi_mpi_byte", Numbers::without_sign},
                            {"ompi_mpi_short", Numbers::with_sign},
                            {"ompi_mpi_unsigned_short", Numbers::without_sign},
                            {"ompi_mpi_int", Numbers::with_sign},
                            {"ompi_mpi_unsigned", Numbers::without_sign},
                            {"ompi_mpi_long", Numbers::with_sign},
                            {"ompi_mpi_long_long_int", Numbers::with_sign},
                            {"ompi_mpi_unsigned_long_long", Numbers::without_sign},
                            {"ompi_mpi_int8_t", Numbers::with_sign},
                            {"ompi_mpi_uint8_t", Numbers::without_sign},
                            {"ompi_mpi_int16_t", Numbers::with_sign},
                            {"ompi_mpi_uint16_t", Numbers::without_sign},
                            {"ompi_mpi_int32_t", Numbers::with_sign},
                            {"ompi_mpi_uint32_t", Numbers::without_sign},
                            {"ompi_mpi_int64_t", Numbers::with_sign},
                            {"ompi_mpi_uint64_t", Numbers::without_sign},
                            {"ompi_mpi_aint", Numbers::with_sign},
                            {"ompi_mpi_count", Numbers::with_sign},
                            {"ompi_mpi_float", Numbers::floating},
                            {"ompi_mpi_double", Numbers::floating},
                            {"ompi_mpi_integer", Numbers::with_sign},
                            {"ompi_mpi_integer1", Numbers::with_sign},
                            {"ompi_mpi_integer2", Numbers::with_sign},
                            {"ompi_mpi_integer4", Numbers::with_sign},
                            {"ompi_mpi_integer8", Numbers::with_sign},
                            {"ompi_mpi_real", Numbers::floating},
                            {"ompi_mpi_real4", Numbers::floating},
                            {"ompi_mpi_real8", Numbers::floating},
                            {"ompi_mpi_dblprec", Numbers::floating},
                            {"ompi_mpi_c_complex", Numbers::complex},
                            {"ompi_mpi_c_float_complex", Numbers::complex},
                            {"ompi_mpi_c_double_complex", Numbers::complex},
                            {"ompi_mpi_cxx_cplex", Numbers::complex},
                            {"ompi_mpi_cxx_dblcplex", Numbers::complex},
                            {"ompi_mpi_cplex", Numbers::complex},
                            {"ompi_mpi_dblcplex", Numbers::complex},
                            {"ompi_mpi_complex8", Numbers::complex},
                            {"ompi_mpi_complex16", Numbers::complex}};

using Types = std::unordered_map<const void *, ElementNumbers>;

Types &types() {
    static Types *const instance = new Types;
    return *instance;
}

/** Empty: no type of GPUs has this size. A Fortran compiler may choose such a size. */
std::optional<ElementType> with_size(Numbers numbers, size_t bytes) {
    const bool sign = numbers == Numbers::with_sign;
    if (numbers == Numbers::floating || numbers == Numbers::complex) {
        return bytes == 4   ? std::optional(ElementType::float32)
               : bytes == 8 ? std::optional(ElementType::float64)
                            : std::nullopt;
    }
    switch (bytes) {
        case 1:
            return sign ? ElementType::int8 : ElementType::uint8;
        case 2:
            return sign ? ElementType::int16 : ElementType::uint16;
        case 4:
            return sign ? ElementType::int32 : ElementType::uint32;
        case 8:
            return sign ? ElementType::int64 : ElementType::uint64;
        default:
            return std::nullopt;
    }
}

}  // namespace

void find_element_types(const OpenMpiLibrary &library) {
    for (const Known &known : kKnown) {
        const void *datatype = library.as_bound(known.symbol);
        const size_t count = known.numbers == Numbers::complex ? 2 : 1;
        const std::optional<ElementType> type =
            datatype != nullptr ? with_size(known.numbers, OpalDatatype(datatype).size() / count)
                                : std::nullopt;
        if (type) {
            types()[datatype] = {*type, count};
        }
    }
}

std::optional<ElementNumbers> numbers_to_reduce(ReductionOperation operation,
                                                const void *datatype) {
    const auto found = types().find(datatype);
    const bool possible = found != types().end() && is_reduction(operation, found->second.type) &&
                          (found->second.count == 1 || operation == ReductionOperation::sum);
    return possible ? std::optional(found->second) : std::nullopt;
}

}  // namespace gpushm::openmpi
