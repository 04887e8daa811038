// SPDX-License-Identifier: BSD-3-Clause
// What core/kernels/reduction_kernel.cu does on a GPU.
#include "core/kernels/reduction_kernel.hpp"

#include "kernel.hpp"

#include <cstring>
#include <type_traits>

namespace simcuda {

namespace {

using gpushm::ElementType;
using gpushm::ReductionOperation;
using gpushm::ReductionParameters;

// Whole numbers wrap around.
template <typename Number>
using Wide = std::conditional_t<std::is_integral_v<Number>, std::uint64_t, Number>;

template <typename Number>
Number combine_bits(ReductionOperation operation, Number first, Number second) {
    if constexpr (std::is_integral_v<Number>) {
        switch (operation) {
            case ReductionOperation::band:
                return static_cast<Number>(first & second);
            case ReductionOperation::bor:
                return static_cast<Number>(first | second);
            default:
                return static_cast<Number>(first ^ second);
        }
    }
    return first;
}

template <typename Number>
Number combine(ReductionOperation operation, Number first, Number second) {
    const auto left = static_cast<Wide<Number>>(first);
    const auto right = static_cast<Wide<Number>>(second);
    switch (operation) {
        case ReductionOperation::max:
            return first > second ? first : second;
        case ReductionOperation::min:
            return first < second ? first : second;
        case ReductionOperation::sum:
            return static_cast<Number>(left + right);
        case ReductionOperation::prod:
            return static_cast<Number>(left * right);
        case ReductionOperation::land:
            return static_cast<Number>(first != 0 && second != 0);
        case ReductionOperation::lor:
            return static_cast<Number>(first != 0 || second != 0);
        case ReductionOperation::lxor:
            return static_cast<Number>((first != 0) != (second != 0));
        default:
            return combine_bits(operation, first, second);
    }
}

template <typename Number>
CUresult reduce(Lock &lock, const Context &context, const ReductionParameters &parameters) {
    const std::size_t bytes = parameters.count * sizeof(Number);
    Span result_span;
    Span first_span;
    Span second_span;
    CUresult result = find_kernel_memory(parameters.first, bytes, false, context, &first_span);
    if (result == CUDA_SUCCESS) {
        result = find_kernel_memory(parameters.second, bytes, false, context, &second_span);
    }
    if (result == CUDA_SUCCESS) {
        result = find_kernel_memory(parameters.result, bytes, true, context, &result_span);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const auto *first = reinterpret_cast<const Number *>(first_span.access());
    const auto *second = reinterpret_cast<const Number *>(second_span.access());
    auto *target = reinterpret_cast<Number *>(result_span.access());
    lock.unlock();
    for (std::uint64_t i = 0; i < parameters.count; ++i) {
        target[i] = combine(parameters.operation, first[i], second[i]);
    }
    lock.lock();
    return CUDA_SUCCESS;
}

}  // namespace

CUresult run_reduction(Lock &lock, Context &context, const void *parameter) {
    ReductionParameters parameters;
    std::memcpy(&parameters, parameter, sizeof(parameters));
    switch (parameters.type) {
        case ElementType::int8:
            return reduce<std::int8_t>(lock, context, parameters);
        case ElementType::int16:
            return reduce<std::int16_t>(lock, context, parameters);
        case ElementType::int32:
            return reduce<std::int32_t>(lock, context, parameters);
        case ElementType::int64:
            return reduce<std::int64_t>(lock, context, parameters);
        case ElementType::uint8:
            return reduce<std::uint8_t>(lock, context, parameters);
        case ElementType::uint16:
            return reduce<std::uint16_t>(lock, context, parameters);
        case ElementType::uint32:
            return reduce<std::uint32_t>(lock, context, parameters);
        case ElementType::uint64:
            return reduce<std::uint64_t>(lock, context, parameters);
        case ElementType::float32:
            return reduce<float>(lock, context, parameters);
        case ElementType::float64:
            return reduce<double>(lock, context, parameters);
    }
    return CUDA_ERROR_LAUNCH_FAILED;
}

}  // namespace simcuda
