// SPDX-License-Identifier: BSD-3-Clause
// Operations of the program. MPI calls their functions on the CPU, wherever the buffers of the
// reduction are.
#include "operations_values.hpp"

#include "pattern.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gpushm::mpi_test::operations {
namespace {

constexpr int kModulus = 10007;

int small_value(int rank, int index) {
    return static_cast<int>(
        message_seed(static_cast<uint64_t>(rank) + 100, static_cast<size_t>(index)) % kModulus);
}

// Commutative.
int add_modulo(int left, int right) {
    return (left + right) % kModulus;
}

// Associative, but not commutative: the first that is not 0.
int first_nonzero(int left, int right) {
    return left != 0 ? left : right;
}

// x -> factor * x + term. There are four bytes between the two which no operation may touch.
struct Affine {
    int factor;
    int gap;
    int term;
};

struct Map {
    int factor;
    int term;
};

// Commutative.
Map add_maps(const Map &left, const Map &right) {
    return {add_modulo(left.factor, right.factor), add_modulo(left.term, right.term)};
}

// Not commutative: first `left`, then `right`.
Map compose(const Map &left, const Map &right) {
    return {static_cast<int>(int64_t{left.factor} * right.factor % kModulus),
            static_cast<int>((int64_t{right.factor} * left.term + right.term) % kModulus)};
}

template <int (*kCombine)(int, int)>
void reduce_ints(void *in, void *in_out, int *count, MPI_Datatype *) {
    const int *left = static_cast<const int *>(in);
    int *right = static_cast<int *>(in_out);
    for (int i = 0; i < *count; ++i) {
        right[i] = kCombine(left[i], right[i]);
    }
}

template <Map (*kCombine)(const Map &, const Map &)>
void reduce_affine(void *in, void *in_out, int *count, MPI_Datatype *) {
    const Affine *left = static_cast<const Affine *>(in);
    Affine *right = static_cast<Affine *>(in_out);
    for (int i = 0; i < *count; ++i) {
        const Map result =
            kCombine({left[i].factor, left[i].term}, {right[i].factor, right[i].term});
        right[i].factor = result.factor;
        right[i].term = result.term;
    }
}

std::shared_ptr<MPI_Op> make_op(MPI_User_function *function, bool commutative) {
    auto op = std::shared_ptr<MPI_Op>(new MPI_Op, [](MPI_Op *made) {
        MPI_Op_free(made);
        delete made;
    });
    MPI_Op_create(function, commutative ? 1 : 0, op.get());
    return op;
}

// Streams of both types are arrays: of ints, and of maps.
template <typename T, typename Value, typename Combine>
Reduction make_reduction(const std::string &name, const LayoutPtr &layout,
                         MPI_User_function *function, bool commutative, Value value,
                         Combine combine) {
    Reduction reduction;
    reduction.name = name;
    reduction.owner = make_op(function, commutative);
    reduction.op = *reduction.owner;
    reduction.layout = layout;
    reduction.values = [value](int rank, int count) {
        Bytes stream(static_cast<size_t>(count) * sizeof(T));
        for (int i = 0; i < count; ++i) {
            const T element = value(rank, i);
            std::memcpy(stream.data() + static_cast<size_t>(i) * sizeof(T), &element, sizeof(T));
        }
        return stream;
    };
    reduction.combine = [combine](const Bytes &left, Bytes &right) {
        for (size_t at = 0; at < right.size(); at += sizeof(T)) {
            T a;
            T b;
            std::memcpy(&a, left.data() + at, sizeof(T));
            std::memcpy(&b, right.data() + at, sizeof(T));
            const T result = combine(a, b);
            std::memcpy(right.data() + at, &result, sizeof(T));
        }
    };
    return reduction;
}

LayoutPtr make_affine() {
    const MPI_Aint displacements[] = {offsetof(Affine, factor), offsetof(Affine, term)};
    MPI_Datatype type;
    MPI_Type_create_hindexed_block(2, 1, displacements, MPI_INT, &type);
    const LayoutPtr base = basic("int", MPI_INT, sizeof(int));
    return derive("affine map", type, {{base, displacements[0], 1}, {base, displacements[1], 1}});
}

}  // namespace

std::vector<Reduction> user_reductions() {
    const LayoutPtr ints = basic("int", MPI_INT, sizeof(int));
    const LayoutPtr affine = make_affine();
    const auto map_value = [](int rank, int index) {
        return Map{small_value(rank, 2 * index), small_value(rank, 2 * index + 1)};
    };
    const auto sparse_value = [](int rank, int index) {
        const int value = small_value(rank, index);
        return value % 3 == 0 ? value : 0;
    };
    return {
        make_reduction<int>("user operation on int", ints, reduce_ints<add_modulo>, true,
                            small_value, add_modulo),
        make_reduction<int>("user operation that does not commute, on int", ints,
                            reduce_ints<first_nonzero>, false, sparse_value, first_nonzero),
        make_reduction<Map>("user operation on a type with a gap", affine, reduce_affine<add_maps>,
                            true, map_value, add_maps),
        make_reduction<Map>("user operation that does not commute, on a type with a gap", affine,
                            reduce_affine<compose>, false, map_value, compose),
    };
}

}  // namespace gpushm::mpi_test::operations
