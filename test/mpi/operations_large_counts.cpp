// SPDX-License-Identifier: BSD-3-Clause
// The functions of MPI 4 that take counts of type MPI_Count: one of each kind, since the others
// share their implementation with those that take an int.
#include "operations_registry.hpp"
#include "operations_types.hpp"
#include "operations_values.hpp"

namespace gpushm::mpi_test::operations {

#if MPI_VERSION >= 4

namespace {

constexpr int kTag = 11;
constexpr MPI_Count kCounts[] = {7, 100000};

void test_sendrecv(Trial &trial, const TypePair &types) {
    for (MPI_Count count : kCounts) {
        const int length = static_cast<int>(count);
        Exchange exchange(trial, text("count %d", length));
        const Items out = exchange.source(*types.send, length);
        const Items in = exchange.destination(*types.receive, length);
        in.expect(0, exchange.sent(trial.left(), *types.send, length));
        exchange.run([&] {
            exchange.require(MPI_Sendrecv_c(out.address(), count, out.type(), trial.right(), kTag,
                                            in.address(), count, in.type(), trial.left(), kTag,
                                            trial.group().comm, MPI_STATUS_IGNORE),
                             "MPI_Sendrecv_c");
        });
    }
}

void test_bcast(Trial &trial, const TypePair &types) {
    for (MPI_Count count : kCounts) {
        const int length = static_cast<int>(count);
        Exchange exchange(trial, text("count %d", length));
        Items data;
        if (trial.group().rank == 0) {
            data = exchange.source(*types.send, length);
        } else {
            data = exchange.destination(*types.receive, length);
            data.expect(0, exchange.sent(0, *types.send, length));
        }
        exchange.run([&] {
            exchange.require(MPI_Bcast_c(data.address(), count, data.type(), 0, trial.group().comm),
                             "MPI_Bcast_c");
        });
    }
}

void test_allgatherv(Trial &trial, const TypePair &types) {
    const Group &group = trial.group();
    for (MPI_Count count : kCounts) {
        const int length = static_cast<int>(count);
        Exchange exchange(trial, text("count %d", length));
        const std::vector<MPI_Count> counts(static_cast<size_t>(group.size), count);
        std::vector<MPI_Aint> displacements;
        const Items out = exchange.source(*types.send, length);
        const Items in = exchange.destination(*types.receive, (length + 1) * group.size);
        for (int rank = 0; rank < group.size; ++rank) {
            displacements.push_back((count + 1) * rank);
            in.expect((length + 1) * rank, exchange.sent(rank, *types.send, length));
        }
        exchange.run([&] {
            exchange.require(
                MPI_Allgatherv_c(out.address(), count, out.type(), in.address(), counts.data(),
                                 displacements.data(), in.type(), group.comm),
                "MPI_Allgatherv_c");
        });
    }
}

void test_allreduce(Trial &trial) {
    const Reduction sum = sum_of_ints();
    const Group &group = trial.group();
    for (MPI_Count count : kCounts) {
        const int length = static_cast<int>(count);
        Exchange exchange(trial, text("count %d", length));
        const Items out = exchange.blank(Role::source, *sum.layout, length);
        out.fill(0, sum.values(group.rank, length));
        const Items in = exchange.destination(*sum.layout, length);
        in.expect(0, reduce(sum, group.size, length));
        exchange.run([&] {
            exchange.require(
                MPI_Allreduce_c(out.address(), in.address(), count, MPI_INT, MPI_SUM, group.comm),
                "MPI_Allreduce_c");
        });
    }
}

void test_pack(Trial &trial, const TypePair &types) {
    const MPI_Comm comm = trial.group().comm;
    for (MPI_Count count : kCounts) {
        const int length = static_cast<int>(count);
        Exchange exchange(trial, text("count %d", length));
        const LayoutPtr bytes = make_byte();
        const Items from = exchange.source(*types.send, length);
        const Items to = exchange.destination(*types.receive, length);
        to.expect(0, from.pack(0, length));
        MPI_Count size = 0;
        exchange.require(MPI_Pack_size_c(count, from.type(), comm, &size), "MPI_Pack_size_c");
        const Items packed = exchange.blank(Role::source, *bytes, static_cast<int>(size));
        packed.ignore(static_cast<size_t>(size));
        exchange.run([&] {
            MPI_Count end = 0;
            MPI_Count position = 0;
            exchange.require(
                MPI_Pack_c(from.address(), count, from.type(), packed.address(), size, &end, comm),
                "MPI_Pack_c");
            exchange.require(MPI_Unpack_c(packed.address(), end, &position, to.address(), count,
                                          to.type(), comm),
                             "MPI_Unpack_c");
        });
    }
}

}  // namespace

void add_large_counts(Registry &registry) {
    using Test = void (*)(Trial &, const TypePair &);
    const std::pair<const char *, Test> tests[] = {
        {"Sendrecv_c", test_sendrecv},
        {"Bcast_c", test_bcast},
        {"Allgatherv_c", test_allgatherv},
        {"Pack_c/Unpack_c", test_pack},
    };
    for (const TypePair &types : {same_type(make_int()), same_type(make_vector())}) {
        for (const auto &[name, test] : tests) {
            registry.add(std::string(name) + ", " + types.name,
                         [types, test = test](Trial &trial) { test(trial, types); });
        }
    }
    registry.add("Allreduce_c, int", test_allreduce);
}

#else

void add_large_counts(Registry &) {}

#endif

}  // namespace gpushm::mpi_test::operations
