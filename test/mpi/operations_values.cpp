// SPDX-License-Identifier: BSD-3-Clause
// Predefined operations by the tables of MPI 4.1, 6.9.2 and 6.9.4.
#include "operations_values.hpp"

#include "pattern.hpp"

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace gpushm::mpi_test::operations {
namespace {

enum class Operation { sum, prod, max, min, land, lor, lxor, band, bor, bxor, maxloc, minloc };

struct NamedOperation {
    Operation operation;
    const char *name;
    MPI_Op op;
};

std::vector<NamedOperation> arithmetic_operations() {
    return {{Operation::sum, "MPI_SUM", MPI_SUM},
            {Operation::prod, "MPI_PROD", MPI_PROD},
            {Operation::max, "MPI_MAX", MPI_MAX},
            {Operation::min, "MPI_MIN", MPI_MIN}};
}

std::vector<NamedOperation> complex_operations() {
    return {{Operation::sum, "MPI_SUM", MPI_SUM}, {Operation::prod, "MPI_PROD", MPI_PROD}};
}

std::vector<NamedOperation> logical_operations() {
    return {{Operation::land, "MPI_LAND", MPI_LAND},
            {Operation::lor, "MPI_LOR", MPI_LOR},
            {Operation::lxor, "MPI_LXOR", MPI_LXOR}};
}

std::vector<NamedOperation> bit_operations() {
    return {{Operation::band, "MPI_BAND", MPI_BAND},
            {Operation::bor, "MPI_BOR", MPI_BOR},
            {Operation::bxor, "MPI_BXOR", MPI_BXOR}};
}

std::vector<NamedOperation> pair_operations() {
    return {{Operation::maxloc, "MPI_MAXLOC", MPI_MAXLOC},
            {Operation::minloc, "MPI_MINLOC", MPI_MINLOC}};
}

uint64_t random_of(int rank, int index) {
    return message_seed(static_cast<uint64_t>(rank), static_cast<size_t>(index));
}

// A factor with which eight ranks do not exceed an 8-bit integer.
int factor_of(int rank, int index) {
    constexpr int kFactors[] = {3, 2, 1, 1};
    return kFactors[(rank + index) % 4];
}

template <typename T>
struct IsComplex : std::false_type {};
template <typename T>
struct IsComplex<std::complex<T>> : std::true_type {};

template <typename T>
T integer_value(Operation operation, int rank, int index) {
    const uint64_t random = random_of(rank, index);
    switch (operation) {
        case Operation::sum:
            return static_cast<T>(random %
                                  (static_cast<uint64_t>(std::numeric_limits<T>::max()) / 8));
        case Operation::prod:
            return static_cast<T>(factor_of(rank, index));
        case Operation::land:
        case Operation::lor:
        case Operation::lxor:
            return static_cast<T>(random % 4 == 0 ? 0 : 1 + random / 4 % 100);
        default:
            return static_cast<T>(random);
    }
}

template <typename T>
T float_value(Operation operation, int rank, int index) {
    const uint64_t random = random_of(rank, index);
    const int sign = random % 2 == 0 ? 1 : -1;
    if (operation == Operation::prod) {
        return static_cast<T>(sign * factor_of(rank, index)) / 2;
    }
    return static_cast<T>(sign * static_cast<int>(random / 2 % 100000)) / 8;
}

template <typename T>
T complex_value(Operation operation, int rank, int index) {
    using Part = typename T::value_type;
    const uint64_t random = random_of(rank, index);
    if (operation == Operation::prod) {
        // 2 + i, turned by right angles: no product has a part that is 0, of which the sign would
        // depend on the order.
        constexpr int kReal[] = {2, -1, -2, 1};
        constexpr int kImaginary[] = {1, 2, -1, -2};
        return {static_cast<Part>(kReal[random % 4]), static_cast<Part>(kImaginary[random % 4])};
    }
    return {static_cast<Part>(random % 20001) - 10000,
            (static_cast<Part>(random / 20001 % 20001) - 10000) / 8};
}

template <typename T>
T value_of(Operation operation, int rank, int index) {
    if constexpr (std::is_same_v<T, bool>) {
        return random_of(rank, index) % 4 != 0;
    } else if constexpr (IsComplex<T>::value) {
        return complex_value<T>(operation, rank, index);
    } else if constexpr (std::is_floating_point_v<T>) {
        return float_value<T>(operation, rank, index);
    } else {
        return integer_value<T>(operation, rank, index);
    }
}

template <typename T>
T combine_integers(Operation operation, T left, T right) {
    switch (operation) {
        case Operation::land:
            return static_cast<T>(left && right);
        case Operation::lor:
            return static_cast<T>(left || right);
        case Operation::lxor:
            return static_cast<T>(!left != !right);
        case Operation::band:
            return static_cast<T>(left & right);
        case Operation::bor:
            return static_cast<T>(left | right);
        case Operation::bxor:
            return static_cast<T>(left ^ right);
        default:
            return right;
    }
}

template <typename T>
T combine_values(Operation operation, T left, T right) {
    if (operation == Operation::sum) {
        return static_cast<T>(left + right);
    }
    if (operation == Operation::prod) {
        return static_cast<T>(left * right);
    }
    if constexpr (!IsComplex<T>::value) {
        if (operation == Operation::max) {
            return std::max(left, right);
        }
        if (operation == Operation::min) {
            return std::min(left, right);
        }
    }
    if constexpr (std::is_integral_v<T>) {
        return combine_integers(operation, left, right);
    }
    return right;
}

// Elements of a stream. The bytes which a value does not define are 0 in it.
template <typename T>
T load(const Bytes &stream, size_t at) {
    T value;
    std::memcpy(&value, stream.data() + at, sizeof(T));
    return value;
}

constexpr size_t kLongDoubleBytes = 10;  // of 16; x87

// The bytes of a scalar that have a meaning.
template <typename T>
constexpr size_t defined_bytes() {
    return std::is_same_v<T, long double> ? kLongDoubleBytes : sizeof(T);
}

template <typename T>
void store(Bytes &stream, size_t at, const T &value) {
    if constexpr (IsComplex<T>::value) {
        store(stream, at, value.real());
        store(stream, at + sizeof(T) / 2, value.imag());
    } else {
        std::memcpy(stream.data() + at, &value, defined_bytes<T>());
    }
}

// The blocks of a scalar at `offset`.
template <typename T>
void append_blocks(std::vector<Block> &blocks, ptrdiff_t offset) {
    if constexpr (IsComplex<T>::value) {
        using Part = typename T::value_type;
        append_blocks<Part>(blocks, offset);
        append_blocks<Part>(blocks, offset + static_cast<ptrdiff_t>(sizeof(Part)));
    } else {
        constexpr size_t kDefined = defined_bytes<T>();
        blocks.push_back({offset, kDefined, sizeof(T)});
        if (kDefined < sizeof(T)) {
            blocks.push_back(
                {offset + static_cast<ptrdiff_t>(kDefined), sizeof(T) - kDefined, sizeof(T), true});
        }
    }
}

template <typename T>
LayoutPtr scalar_layout(const char *name, MPI_Datatype type) {
    std::vector<Block> blocks;
    append_blocks<T>(blocks, 0);
    return std::make_shared<Layout>(name, type, blocks, Bounds{0, sizeof(T)});
}

// Of which integers the values are taken.
enum class Range { all, without_sign_bit };

template <typename T>
T limit(Range range, T value) {
    if constexpr (std::is_integral_v<T>) {
        constexpr uint64_t kMask = ~uint64_t{0} >> (65 - 8 * sizeof(T));
        if (range == Range::without_sign_bit) {
            return static_cast<T>(static_cast<uint64_t>(value) & kMask);
        }
    }
    return value;
}

template <typename T>
void add_scalar(std::vector<Reduction> &list, const char *type_name, MPI_Datatype type,
                const std::vector<NamedOperation> &operations, Range range = Range::all) {
    const LayoutPtr layout = scalar_layout<T>(type_name, type);
    for (const NamedOperation &named : operations) {
        const Operation operation = named.operation;
        Reduction reduction;
        reduction.name = std::string(named.name) + " of " + type_name;
        reduction.op = named.op;
        reduction.layout = layout;
        reduction.values = [operation, range](int rank, int count) {
            Bytes stream(static_cast<size_t>(count) * sizeof(T));
            for (int i = 0; i < count; ++i) {
                store(stream, static_cast<size_t>(i) * sizeof(T),
                      limit(range, value_of<T>(operation, rank, i)));
            }
            return stream;
        };
        reduction.combine = [operation](const Bytes &left, Bytes &right) {
            for (size_t at = 0; at < right.size(); at += sizeof(T)) {
                store(right, at, combine_values(operation, load<T>(left, at), load<T>(right, at)));
            }
        };
        list.push_back(reduction);
    }
}

template <typename T>
struct Pair {
    T value;
    int index;
};

// Few different values, so that the index often decides.
template <typename T>
Pair<T> pair_of(int rank, int index) {
    const uint64_t random = random_of(rank, index);
    return {static_cast<T>(static_cast<int>(random % 5) - 2),
            static_cast<int>(random / 5 % 1000) - 500};
}

template <typename T>
Pair<T> combine_pairs(Operation operation, const Pair<T> &left, const Pair<T> &right) {
    if (left.value == right.value) {
        return {left.value, std::min(left.index, right.index)};
    }
    const bool left_wins =
        operation == Operation::maxloc ? left.value > right.value : left.value < right.value;
    return left_wins ? left : right;
}

template <typename T>
Pair<T> load_pair(const Bytes &stream, size_t at) {
    return {load<T>(stream, at), load<int>(stream, at + sizeof(T))};
}

template <typename T>
void store_pair(Bytes &stream, size_t at, const Pair<T> &pair) {
    store(stream, at, pair.value);
    store(stream, at + sizeof(T), pair.index);
}

template <typename T>
void add_pair(std::vector<Reduction> &list, const char *type_name, MPI_Datatype type) {
    constexpr size_t kStep = sizeof(T) + sizeof(int);  // in a stream
    std::vector<Block> blocks;
    append_blocks<T>(blocks, 0);
    append_blocks<int>(blocks, offsetof(Pair<T>, index));
    const auto layout =
        std::make_shared<Layout>(type_name, type, blocks, Bounds{0, sizeof(Pair<T>)});
    for (const NamedOperation &named : pair_operations()) {
        const Operation operation = named.operation;
        Reduction reduction;
        reduction.name = std::string(named.name) + " of " + type_name;
        reduction.op = named.op;
        reduction.layout = layout;
        reduction.values = [](int rank, int count) {
            Bytes stream(static_cast<size_t>(count) * kStep);
            for (int i = 0; i < count; ++i) {
                store_pair(stream, static_cast<size_t>(i) * kStep, pair_of<T>(rank, i));
            }
            return stream;
        };
        reduction.combine = [operation](const Bytes &left, Bytes &right) {
            for (size_t at = 0; at < right.size(); at += kStep) {
                store_pair(
                    right, at,
                    combine_pairs(operation, load_pair<T>(left, at), load_pair<T>(right, at)));
            }
        };
        list.push_back(reduction);
    }
}

template <typename T>
void add_integer(std::vector<Reduction> &list, const char *name, MPI_Datatype type,
                 Range range = Range::all) {
    add_scalar<T>(list, name, type, arithmetic_operations(), range);
    add_scalar<T>(list, name, type, logical_operations());
    add_scalar<T>(list, name, type, bit_operations());
}

void add_integers(std::vector<Reduction> &list) {
    add_integer<signed char>(list, "MPI_CHAR", MPI_CHAR);
    add_integer<signed char>(list, "MPI_SIGNED_CHAR", MPI_SIGNED_CHAR);
    add_integer<unsigned char>(list, "MPI_UNSIGNED_CHAR", MPI_UNSIGNED_CHAR);
    add_integer<short>(list, "MPI_SHORT", MPI_SHORT);
    add_integer<unsigned short>(list, "MPI_UNSIGNED_SHORT", MPI_UNSIGNED_SHORT);
    add_integer<int>(list, "MPI_INT", MPI_INT);
    add_integer<unsigned>(list, "MPI_UNSIGNED", MPI_UNSIGNED);
    add_integer<long>(list, "MPI_LONG", MPI_LONG);
    // Open MPI from 4.1.2 on compares it as a signed type (github.com/open-mpi/ompi, 10525).
    add_integer<unsigned long>(list, "MPI_UNSIGNED_LONG", MPI_UNSIGNED_LONG,
                               Range::without_sign_bit);
    add_integer<long long>(list, "MPI_LONG_LONG", MPI_LONG_LONG);
    add_integer<unsigned long long>(list, "MPI_UNSIGNED_LONG_LONG", MPI_UNSIGNED_LONG_LONG);
    add_integer<int8_t>(list, "MPI_INT8_T", MPI_INT8_T);
    add_integer<int16_t>(list, "MPI_INT16_T", MPI_INT16_T);
    add_integer<int32_t>(list, "MPI_INT32_T", MPI_INT32_T);
    add_integer<int64_t>(list, "MPI_INT64_T", MPI_INT64_T);
    add_integer<uint8_t>(list, "MPI_UINT8_T", MPI_UINT8_T);
    add_integer<uint16_t>(list, "MPI_UINT16_T", MPI_UINT16_T);
    add_integer<uint32_t>(list, "MPI_UINT32_T", MPI_UINT32_T);
    add_integer<uint64_t>(list, "MPI_UINT64_T", MPI_UINT64_T);
}

// Types of several languages: no logical operations.
template <typename T>
void add_address_type(std::vector<Reduction> &list, const char *name, MPI_Datatype type,
                      Range range = Range::all) {
    add_scalar<T>(list, name, type, arithmetic_operations(), range);
    add_scalar<T>(list, name, type, bit_operations());
}

void add_other_scalars(std::vector<Reduction> &list) {
    add_address_type<MPI_Aint>(list, "MPI_AINT", MPI_AINT);
    // Open MPI compares it as an unsigned type.
    add_address_type<MPI_Offset>(list, "MPI_OFFSET", MPI_OFFSET, Range::without_sign_bit);
    add_address_type<MPI_Count>(list, "MPI_COUNT", MPI_COUNT);
    add_scalar<float>(list, "MPI_FLOAT", MPI_FLOAT, arithmetic_operations());
    add_scalar<double>(list, "MPI_DOUBLE", MPI_DOUBLE, arithmetic_operations());
    add_scalar<long double>(list, "MPI_LONG_DOUBLE", MPI_LONG_DOUBLE, arithmetic_operations());
    add_scalar<std::complex<float>>(list, "MPI_C_FLOAT_COMPLEX", MPI_C_FLOAT_COMPLEX,
                                    complex_operations());
    add_scalar<std::complex<double>>(list, "MPI_C_DOUBLE_COMPLEX", MPI_C_DOUBLE_COMPLEX,
                                     complex_operations());
    add_scalar<std::complex<long double>>(list, "MPI_C_LONG_DOUBLE_COMPLEX",
                                          MPI_C_LONG_DOUBLE_COMPLEX, complex_operations());
    add_scalar<bool>(list, "MPI_C_BOOL", MPI_C_BOOL, logical_operations());
    add_scalar<unsigned char>(list, "MPI_BYTE", MPI_BYTE, bit_operations());
}

void add_pairs(std::vector<Reduction> &list) {
    add_pair<float>(list, "MPI_FLOAT_INT", MPI_FLOAT_INT);
    add_pair<double>(list, "MPI_DOUBLE_INT", MPI_DOUBLE_INT);
    add_pair<long>(list, "MPI_LONG_INT", MPI_LONG_INT);
    add_pair<int>(list, "MPI_2INT", MPI_2INT);
    add_pair<short>(list, "MPI_SHORT_INT", MPI_SHORT_INT);
    add_pair<long double>(list, "MPI_LONG_DOUBLE_INT", MPI_LONG_DOUBLE_INT);
}

}  // namespace

Bytes reduce(const Reduction &reduction, int ranks, int count) {
    Bytes result = reduction.values(0, count);
    for (int rank = 1; rank < ranks; ++rank) {
        Bytes next = reduction.values(rank, count);
        reduction.combine(result, next);
        result.swap(next);
    }
    return result;
}

std::vector<Reduction> predefined_reductions() {
    std::vector<Reduction> list;
    add_integers(list);
    add_other_scalars(list);
    add_pairs(list);
    return list;
}

Reduction sum_of_ints() {
    std::vector<Reduction> list;
    add_scalar<int>(list, "MPI_INT", MPI_INT, {{Operation::sum, "MPI_SUM", MPI_SUM}});
    return list.front();
}

Reduction maxloc_of_doubles() {
    std::vector<Reduction> list;
    add_pair<double>(list, "MPI_DOUBLE_INT", MPI_DOUBLE_INT);
    return list.front();
}

}  // namespace gpushm::mpi_test::operations
