// SPDX-License-Identifier: BSD-3-Clause
// The predefined reductions of MPI. They compute what Open MPI computes on the CPU
// (ompi/mca/op/base/op_base_functions.c), so that parts of a reduction may be computed on either:
// integers wrap around, and max and min take the second operand if one of them is not a number.
#include "core/kernels/reduction_kernel.hpp"

namespace {

using gpushm::ElementType;
using gpushm::kReductionWord;
using gpushm::ReductionOperation;
using gpushm::ReductionParameters;

struct Max {
    template <typename Number>
    __device__ Number operator()(Number first, Number second) const {
        return first > second ? first : second;
    }
};
struct Min {
    template <typename Number>
    __device__ Number operator()(Number first, Number second) const {
        return first < second ? first : second;
    }
};
struct Sum {
    template <typename Number>
    __device__ Number operator()(Number first, Number second) const {
        return static_cast<Number>(first + second);
    }
};
struct Product {
    template <typename Number>
    __device__ Number operator()(Number first, Number second) const {
        return static_cast<Number>(first * second);
    }
};
/** C++ would multiply these as int, which overflows. */
template <>
__device__ uint16_t Product::operator()(uint16_t first, uint16_t second) const {
    return static_cast<uint16_t>(uint32_t{first} * second);
}
struct LogicalAnd {
    template <typename Number>
    __device__ Number operator()(Number first, Number second) const {
        return first != 0 && second != 0;
    }
};
struct LogicalOr {
    template <typename Number>
    __device__ Number operator()(Number first, Number second) const {
        return first != 0 || second != 0;
    }
};
struct LogicalXor {
    template <typename Number>
    __device__ Number operator()(Number first, Number second) const {
        return (first != 0) != (second != 0);
    }
};
struct BitwiseAnd {
    template <typename Number>
    __device__ Number operator()(Number first, Number second) const {
        return first & second;
    }
};
struct BitwiseOr {
    template <typename Number>
    __device__ Number operator()(Number first, Number second) const {
        return first | second;
    }
};
struct BitwiseXor {
    template <typename Number>
    __device__ Number operator()(Number first, Number second) const {
        return first ^ second;
    }
};

/** Small numbers, which a thread reads and writes together: one by one they do not use the link to
 * another GPU. */
template <typename Number>
struct alignas(kReductionWord) Word {
    static constexpr unsigned kNumbers = kReductionWord / sizeof(Number);
    Number number[kNumbers];
};

template <typename Combine, typename Number>
struct CombineWords {
    __device__ Word<Number> operator()(Word<Number> first, Word<Number> second) const {
#pragma unroll
        for (unsigned i = 0; i < Word<Number>::kNumbers; ++i) {
            first.number[i] = Combine()(first.number[i], second.number[i]);
        }
        return first;
    }
};

/** Elements from `begin` on, up to `end`. */
template <typename Combine, typename Element>
__device__ void combine(const ReductionParameters &parameters, uint64_t begin, uint64_t end) {
    const auto *first = reinterpret_cast<const Element *>(parameters.first);
    const auto *second = reinterpret_cast<const Element *>(parameters.second);
    auto *result = reinterpret_cast<Element *>(parameters.result);
    const uint64_t threads = uint64_t{gridDim.x} * blockDim.x;
#pragma unroll 1
    for (uint64_t i = begin + uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < end;
         i += threads) {
        result[i] = Combine()(first[i], second[i]);
    }
}

template <typename Combine, typename Number>
__device__ void reduce(const ReductionParameters &parameters) {
    uint64_t begin = 0;
    if constexpr (sizeof(Number) < kReductionWord) {
        const uint64_t words = words_of(parameters, sizeof(Number));
        combine<CombineWords<Combine, Number>, Word<Number>>(parameters, 0, words);
        begin = words * Word<Number>::kNumbers;
    }
    combine<Combine, Number>(parameters, begin, parameters.count);
}

template <typename Number>
__device__ void compare(const ReductionParameters &parameters) {
    parameters.operation == ReductionOperation::max ? reduce<Max, Number>(parameters)
                                                    : reduce<Min, Number>(parameters);
}

__device__ void compare_numbers(const ReductionParameters &parameters) {
    switch (parameters.type) {
        case ElementType::int8:
            return compare<int8_t>(parameters);
        case ElementType::int16:
            return compare<int16_t>(parameters);
        case ElementType::int32:
            return compare<int32_t>(parameters);
        case ElementType::int64:
            return compare<int64_t>(parameters);
        case ElementType::uint8:
            return compare<uint8_t>(parameters);
        case ElementType::uint16:
            return compare<uint16_t>(parameters);
        case ElementType::uint32:
            return compare<uint32_t>(parameters);
        case ElementType::uint64:
            return compare<uint64_t>(parameters);
        case ElementType::float32:
            return compare<float>(parameters);
        case ElementType::float64:
            return compare<double>(parameters);
    }
}

template <typename Number>
__device__ void calculate(const ReductionParameters &parameters) {
    parameters.operation == ReductionOperation::sum ? reduce<Sum, Number>(parameters)
                                                    : reduce<Product, Number>(parameters);
}

template <typename Unsigned>
__device__ void combine_bits(const ReductionParameters &parameters) {
    switch (parameters.operation) {
        case ReductionOperation::land:
            return reduce<LogicalAnd, Unsigned>(parameters);
        case ReductionOperation::lor:
            return reduce<LogicalOr, Unsigned>(parameters);
        case ReductionOperation::lxor:
            return reduce<LogicalXor, Unsigned>(parameters);
        case ReductionOperation::band:
            return reduce<BitwiseAnd, Unsigned>(parameters);
        case ReductionOperation::bor:
            return reduce<BitwiseOr, Unsigned>(parameters);
        case ReductionOperation::bxor:
            return reduce<BitwiseXor, Unsigned>(parameters);
        default:
            return calculate<Unsigned>(parameters);
    }
}

}  // namespace

/** Only comparisons depend on whether a type is signed. */
extern "C" __global__ void __launch_bounds__(gpushm::kReductionThreads)
    gpushm_reduce(const gpushm::ReductionParameters parameters) {
    if (parameters.operation == ReductionOperation::max ||
        parameters.operation == ReductionOperation::min) {
        return compare_numbers(parameters);
    }
    switch (parameters.type) {
        case ElementType::int8:
        case ElementType::uint8:
            return combine_bits<uint8_t>(parameters);
        case ElementType::int16:
        case ElementType::uint16:
            return combine_bits<uint16_t>(parameters);
        case ElementType::int32:
        case ElementType::uint32:
            return combine_bits<uint32_t>(parameters);
        case ElementType::int64:
        case ElementType::uint64:
            return combine_bits<uint64_t>(parameters);
        case ElementType::float32:
            return calculate<float>(parameters);
        case ElementType::float64:
            return calculate<double>(parameters);
    }
}
