// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/binding/element_types.hpp"

#include "core/copy/reduction.hpp"
#include "openmpi/binding/opal_datatype.hpp"

#include <array>
#include <initializer_list>
#include <unordered_map>

namespace gpushm::openmpi {
namespace {

enum class Numbers { with_sign, without_sign, floating, complex };

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

/** Leaves out what this Open MPI does not have. */
void add_types(const OpenMpiLibrary &library, Numbers numbers,
               std::initializer_list<const char *> symbols) {
    const size_t count = numbers == Numbers::complex ? 2 : 1;
    for (const char *symbol : symbols) {
        const void *datatype = library.as_bound(symbol);
        const std::optional<ElementType> type =
            datatype != nullptr ? with_size(numbers, OpalDatatype(datatype).size() / count)
                                : std::nullopt;
        if (type) {
            types()[datatype] = {*type, count};
        }
    }
}

}  // namespace

void find_element_types(const OpenMpiLibrary &library) {
    add_types(library, Numbers::with_sign,
              {"ompi_mpi_char", "ompi_mpi_signed_char", "ompi_mpi_short", "ompi_mpi_int",
               "ompi_mpi_long", "ompi_mpi_long_long_int", "ompi_mpi_int8_t", "ompi_mpi_int16_t",
               "ompi_mpi_int32_t", "ompi_mpi_int64_t", "ompi_mpi_aint", "ompi_mpi_count",
               "ompi_mpi_offset", "ompi_mpi_integer", "ompi_mpi_integer1", "ompi_mpi_integer2",
               "ompi_mpi_integer4", "ompi_mpi_integer8"});
    add_types(library, Numbers::without_sign,
              {"ompi_mpi_unsigned_char", "ompi_mpi_byte", "ompi_mpi_unsigned_short",
               "ompi_mpi_unsigned", "ompi_mpi_unsigned_long", "ompi_mpi_unsigned_long_long",
               "ompi_mpi_uint8_t", "ompi_mpi_uint16_t", "ompi_mpi_uint32_t", "ompi_mpi_uint64_t"});
    add_types(library, Numbers::floating,
              {"ompi_mpi_float", "ompi_mpi_double", "ompi_mpi_real", "ompi_mpi_real4",
               "ompi_mpi_real8", "ompi_mpi_dblprec"});
    add_types(library, Numbers::complex,
              {"ompi_mpi_c_complex", "ompi_mpi_c_float_complex", "ompi_mpi_c_double_complex",
               "ompi_mpi_cxx_cplex", "ompi_mpi_cxx_dblcplex", "ompi_mpi_cplex", "ompi_mpi_dblcplex",
               "ompi_mpi_complex8", "ompi_mpi_complex16"});
}

std::optional<ElementNumbers> numbers_to_reduce(ReductionOperation operation,
                                                const void *datatype) {
    const auto found = types().find(datatype);
    const bool possible = found != types().end() && is_reduction(operation, found->second.type) &&
                          (found->second.count == 1 || operation == ReductionOperation::sum);
    return possible ? std::optional(found->second) : std::nullopt;
}

}  // namespace gpushm::openmpi
