// SPDX-License-Identifier: BSD-3-Clause
// Each type is made by MPI and, beside that, described as pieces at displacements. All elements are
// aligned: with shorts at odd displacements Open MPI 5.0 receives wrong data, in host memory too.
#include "operations_types.hpp"

#include <array>
#include <cstddef>

namespace gpushm::mpi_test::operations {
namespace {

constexpr ptrdiff_t kInt = sizeof(int);

LayoutPtr make_hvector() {
    MPI_Datatype type;
    MPI_Type_create_hvector(4, 3, 10, MPI_SHORT, &type);
    const LayoutPtr base = basic("short", MPI_SHORT, sizeof(short));
    return derive("hvector", type, {{base, 0, 3}, {base, 10, 3}, {base, 20, 3}, {base, 30, 3}});
}

LayoutPtr make_vector_of_rows() {
    constexpr int kRow = 700;
    constexpr int kStride = 1000;
    MPI_Datatype type;
    MPI_Type_vector(3, kRow, kStride, MPI_INT, &type);
    return derive("vector of long blocks", type,
                  {{make_int(), 0, kRow},
                   {make_int(), kStride * kInt, kRow},
                   {make_int(), 2 * kStride * kInt, kRow}});
}

LayoutPtr make_vector_of_single_elements() {
    MPI_Datatype type;
    MPI_Type_vector(16, 1, 3, MPI_CHAR, &type);
    const LayoutPtr base = basic("char", MPI_CHAR, 1);
    std::vector<Piece> pieces;
    for (int i = 0; i < 16; ++i) {
        pieces.push_back({base, 3 * i, 1});
    }
    return derive("vector of single chars", type, pieces);
}

LayoutPtr make_backward_vector() {
    MPI_Datatype type;
    MPI_Type_vector(4, 1, -2, MPI_INT, &type);
    const LayoutPtr base = make_int();
    return derive("vector of negative stride", type,
                  {{base, 0, 1}, {base, -2 * kInt, 1}, {base, -4 * kInt, 1}, {base, -6 * kInt, 1}});
}

LayoutPtr make_indexed() {
    const int lengths[] = {2, 0, 3, 1};
    const int displacements[] = {1, 4, 5, 10};
    MPI_Datatype type;
    MPI_Type_indexed(4, lengths, displacements, MPI_INT, &type);
    const LayoutPtr base = make_int();
    return derive("indexed", type, {{base, kInt, 2}, {base, 5 * kInt, 3}, {base, 10 * kInt, 1}});
}

LayoutPtr make_indexed_block() {
    const int displacements[] = {8, 0, 4};
    MPI_Datatype type;
    MPI_Type_create_indexed_block(3, 2, displacements, MPI_DOUBLE, &type);
    const LayoutPtr base = basic("double", MPI_DOUBLE, sizeof(double));
    return derive("indexed_block, not in order", type,
                  {{base, 64, 2}, {base, 0, 2}, {base, 32, 2}});
}

LayoutPtr make_hindexed() {
    const int lengths[] = {3, 1, 2};
    const MPI_Aint displacements[] = {20, 0, 44};
    MPI_Datatype type;
    MPI_Type_create_hindexed(3, lengths, displacements, MPI_INT, &type);
    const LayoutPtr base = make_int();
    return derive("hindexed, not in order", type, {{base, 20, 3}, {base, 0, 1}, {base, 44, 2}});
}

LayoutPtr make_hindexed_block() {
    const MPI_Aint displacements[] = {-12, 8, 30};
    MPI_Datatype type;
    MPI_Type_create_hindexed_block(3, 4, displacements, MPI_SHORT, &type);
    const LayoutPtr base = basic("short", MPI_SHORT, sizeof(short));
    return derive("hindexed_block from a negative displacement", type,
                  {{base, -12, 4}, {base, 8, 4}, {base, 30, 4}});
}

// The bounds of a subarray and of a darray are those of the whole array.
LayoutPtr make_subarray(int order) {
    const int sizes[] = {4, 5, 6};
    const int parts[] = {2, 3, 4};
    const int starts[] = {1, 0, 2};
    MPI_Datatype type;
    MPI_Type_create_subarray(3, sizes, parts, starts, order, MPI_INT, &type);

    // The index that runs fastest comes last in C and first in Fortran.
    const bool is_c = order == MPI_ORDER_C;
    const std::array<int, 3> slow_to_fast =
        is_c ? std::array<int, 3>{0, 1, 2} : std::array<int, 3>{2, 1, 0};
    const auto [a, b, c] = slow_to_fast;
    std::vector<Piece> pieces;
    for (int i = starts[a]; i < starts[a] + parts[a]; ++i) {
        for (int j = starts[b]; j < starts[b] + parts[b]; ++j) {
            const int first = (i * sizes[b] + j) * sizes[c] + starts[c];
            pieces.push_back({make_int(), first * kInt, parts[c]});
        }
    }
    return derive(is_c ? "subarray" : "subarray in Fortran's order", type, pieces,
                  {0, 4 * 5 * 6 * kInt});
}

// 6 rows in blocks of 3, 8 columns in turns of 2, over 2 x 2 processes; the part of process (0, 1).
LayoutPtr make_darray() {
    const int sizes[] = {6, 8};
    const int distributions[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC};
    const int arguments[] = {MPI_DISTRIBUTE_DFLT_DARG, 2};
    const int processes[] = {2, 2};
    MPI_Datatype type;
    MPI_Type_create_darray(4, 1, 2, sizes, distributions, arguments, processes, MPI_ORDER_C,
                           MPI_INT, &type);
    std::vector<Piece> pieces;
    for (int row = 0; row < 3; ++row) {
        for (int column : {2, 6}) {
            pieces.push_back({make_int(), (8 * row + column) * kInt, 2});
        }
    }
    return derive("darray", type, pieces, {0, 6 * 8 * kInt});
}

LayoutPtr make_resized(const std::string &name, const LayoutPtr &base, Bounds bounds) {
    MPI_Datatype type;
    MPI_Type_create_resized(base->type(), bounds.lower, bounds.extent, &type);
    return derive(name, type, {{base, 0, 1}}, bounds);
}

LayoutPtr make_vector_of_structs() {
    const LayoutPtr base = make_struct();
    const ptrdiff_t extent = base->bounds().extent;
    MPI_Datatype type;
    MPI_Type_vector(3, 2, 3, base->type(), &type);
    return derive("vector of structs", type,
                  {{base, 0, 2}, {base, 3 * extent, 2}, {base, 6 * extent, 2}});
}

LayoutPtr make_struct_of_vectors() {
    const LayoutPtr vector = make_vector();
    const LayoutPtr indexed = make_indexed();
    const int lengths[] = {1, 2};
    const MPI_Aint displacements[] = {8, 120};
    const MPI_Datatype types[] = {vector->type(), indexed->type()};
    MPI_Datatype type;
    MPI_Type_create_struct(2, lengths, displacements, types, &type);
    return derive("struct of vector and indexed", type, {{vector, 8, 1}, {indexed, 120, 2}});
}

LayoutPtr make_column_of_matrix() {
    constexpr int kRows = 20;
    constexpr int kColumns = 260;  // more than 8 ranks fill
    MPI_Datatype column;
    MPI_Type_vector(kRows, 1, kColumns, MPI_DOUBLE, &column);
    const LayoutPtr base = basic("double", MPI_DOUBLE, sizeof(double));
    std::vector<Piece> pieces;
    for (int row = 0; row < kRows; ++row) {
        pieces.push_back({base, static_cast<ptrdiff_t>(kColumns * row * sizeof(double)), 1});
    }
    // Consecutive items are neighbouring columns.
    return make_resized("columns of a matrix", derive("column", column, pieces),
                        {0, sizeof(double)});
}

LayoutPtr make_duplicate() {
    const LayoutPtr base = make_vector();
    MPI_Datatype type;
    MPI_Type_dup(base->type(), &type);
    return derive("duplicate of a vector", type, {{base, 0, 1}});
}

template <typename Value>
LayoutPtr make_pair(const char *name, MPI_Datatype type) {
    struct Pair {
        Value value;
        int index;
    };
    return std::make_shared<Layout>(
        name, type,
        std::vector<Block>{{0, sizeof(Value), sizeof(Value)},
                           {offsetof(Pair, index), sizeof(int), sizeof(int)}},
        Bounds{0, sizeof(Pair)});
}

// `count` ints side by side on the other side.
TypePair with_ints(const LayoutPtr &layout, bool layout_sends) {
    const int count = static_cast<int>(layout->packed_size() / kInt);
    if (layout_sends) {
        return {layout->name() + " to ints", layout, make_int(), 1, count};
    }
    return {"ints to " + layout->name(), make_int(), layout, count, 1};
}

TypePair vector_to_indexed() {
    return {"vector to indexed", make_vector(), make_indexed(), 1, 1};
}

TypePair backward_to_subarray() {
    return {"vector of negative stride to subarray", make_backward_vector(),
            make_subarray(MPI_ORDER_C), 6, 1};
}

}  // namespace

TypePair same_type(const LayoutPtr &layout) {
    return {layout->name(), layout, layout, 1, 1};
}

LayoutPtr make_int() {
    return basic("int", MPI_INT, sizeof(int));
}

LayoutPtr make_byte() {
    return basic("byte", MPI_BYTE, 1);
}

LayoutPtr make_contiguous() {
    MPI_Datatype type;
    MPI_Type_contiguous(5, MPI_INT, &type);
    return derive("contiguous", type, {{make_int(), 0, 5}});
}

LayoutPtr make_vector() {
    MPI_Datatype type;
    MPI_Type_vector(3, 2, 4, MPI_INT, &type);
    const LayoutPtr base = make_int();
    return derive("vector", type, {{base, 0, 2}, {base, 4 * kInt, 2}, {base, 8 * kInt, 2}});
}

LayoutPtr make_struct() {
    struct Record {
        char letters[3];
        int number;
        double values[2];
        short last;
    };
    const int lengths[] = {3, 1, 2, 1};
    const MPI_Aint displacements[] = {offsetof(Record, letters), offsetof(Record, number),
                                      offsetof(Record, values), offsetof(Record, last)};
    const MPI_Datatype types[] = {MPI_CHAR, MPI_INT, MPI_DOUBLE, MPI_SHORT};
    MPI_Datatype members;
    MPI_Type_create_struct(4, lengths, displacements, types, &members);
    MPI_Datatype type;
    MPI_Type_create_resized(members, 0, sizeof(Record), &type);
    MPI_Type_free(&members);
    return derive("struct", type,
                  {{basic("char", MPI_CHAR, 1), displacements[0], 3},
                   {make_int(), displacements[1], 1},
                   {basic("double", MPI_DOUBLE, sizeof(double)), displacements[2], 2},
                   {basic("short", MPI_SHORT, sizeof(short)), displacements[3], 1}},
                  {0, sizeof(Record)});
}

std::vector<TypePair> few_types() {
    return {same_type(make_int()), same_type(make_vector()), same_type(make_struct())};
}

std::vector<TypePair> all_types() {
    std::vector<TypePair> types = few_types();
    for (const LayoutPtr &layout : {
             make_contiguous(),
             make_hvector(),
             make_vector_of_rows(),
             make_vector_of_single_elements(),
             make_backward_vector(),
             make_indexed(),
             make_indexed_block(),
             make_hindexed(),
             make_hindexed_block(),
             make_subarray(MPI_ORDER_C),
             make_subarray(MPI_ORDER_FORTRAN),
             make_darray(),
             make_resized("resized to more", make_contiguous(), {0, 9 * kInt}),
             make_resized("resized to a lower bound below 0", make_contiguous(), {-8, 36}),
             make_resized("resized to a lower bound above 0", make_indexed(), {4, 44}),
             make_vector_of_structs(),
             make_struct_of_vectors(),
             make_column_of_matrix(),
             make_duplicate(),
             make_pair<double>("MPI_DOUBLE_INT", MPI_DOUBLE_INT),
             make_pair<float>("MPI_FLOAT_INT", MPI_FLOAT_INT),
             make_pair<long>("MPI_LONG_INT", MPI_LONG_INT),
             make_pair<short>("MPI_SHORT_INT", MPI_SHORT_INT),
             make_pair<int>("MPI_2INT", MPI_2INT),
             make_pair<long double>("MPI_LONG_DOUBLE_INT", MPI_LONG_DOUBLE_INT),
         }) {
        types.push_back(same_type(layout));
    }
    types.push_back(with_ints(make_vector(), true));
    types.push_back(with_ints(make_hindexed(), false));
    types.push_back(vector_to_indexed());
    types.push_back(backward_to_subarray());
    return types;
}

std::vector<TypePair> portable_types() {
    return {same_type(make_int()), same_type(make_vector()), same_type(make_indexed_block()),
            same_type(make_resized("resized to a lower bound above 0", make_indexed(), {4, 44}))};
}

}  // namespace gpushm::mpi_test::operations
