// SPDX-License-Identifier: BSD-3-Clause
// Operations between two groups: the lower half of the ranks, and the upper half.
#include "operations_collective_call.hpp"
#include "operations_counts.hpp"
#include "operations_registry.hpp"
#include "operations_types.hpp"
#include "operations_values.hpp"

namespace gpushm::mpi_test::operations {
namespace {

constexpr int kTag = 9;

enum Side { lower, upper };

// The two groups as a rank of one of them sees them. Ranks count within their group; the side is
// the index of a rank's source, by which it differs from that of its namesake.
struct Sides {
    explicit Sides(const Group &world)
        : own(world.rank < world.size / 2 ? lower : upper), other(own == lower ? upper : lower) {
        const int lower_size = world.size / 2;
        own_size = own == lower ? lower_size : world.size - lower_size;
        other_size = world.size - own_size;
    }

    Side own;
    Side other;
    int own_size;
    int other_size;
};

MPI_Comm make_intercommunicator(const Group &world) {
    const Sides sides(world);
    MPI_Comm local;
    MPI_Comm_split(world.comm, sides.own, world.rank, &local);
    MPI_Comm comm;
    MPI_Intercomm_create(local, 0, world.comm, sides.own == lower ? world.size / 2 : 0, kTag,
                         &comm);
    MPI_Comm_free(&local);
    return comm;
}

struct Setting {
    TypePair types;
    Form form;
    Sides sides;
};

// The root of an operation from or to one rank: rank 0 of the lower group.
bool is_root(const Trial &trial, const Sides &sides) {
    return sides.own == lower && trial.group().rank == 0;
}

int root_argument(const Trial &trial, const Sides &sides) {
    if (sides.own == upper) {
        return 0;
    }
    return is_root(trial, sides) ? MPI_ROOT : MPI_PROC_NULL;
}

// The first ranks of the groups exchange a message.
void test_sendrecv(Trial &trial, const Setting &setting) {
    const TypePair &types = setting.types;
    for (int units : unit_counts(trial, types, large_if_ints(types))) {
        Exchange exchange(trial, text("count %d", units));
        const bool takes_part = trial.group().rank == 0;
        const Items out = exchange.source(*types.send, units, setting.sides.own);
        const Items in = exchange.destination(*types.receive, units);
        if (takes_part) {
            in.expect(0, exchange.sent(0, *types.send, units, setting.sides.other));
        }
        const int peer = takes_part ? 0 : MPI_PROC_NULL;
        exchange.run([&] {
            exchange.require(
                MPI_Sendrecv(out.address(), units, out.type(), peer, kTag, in.address(), units,
                             in.type(), peer, kTag, trial.group().comm, MPI_STATUS_IGNORE),
                "MPI_Sendrecv");
        });
    }
}

void test_bcast(Trial &trial, const Setting &setting) {
    const auto bcast = GPUSHM_TEST_COLLECTIVE(Bcast, bcast);
    const TypePair &types = setting.types;
    for (int units : unit_counts(trial, types)) {
        Exchange exchange(trial, text("count %d", units));
        Items data;
        if (is_root(trial, setting.sides)) {
            data = exchange.source(*types.send, units, lower);
        } else {
            data = exchange.destination(*types.receive, units);
        }
        if (setting.sides.own == upper) {
            data.expect(0, exchange.sent(0, *types.send, units, lower));
        }
        bcast.run(exchange, setting.form, data.address(), units, data.type(),
                  root_argument(trial, setting.sides), trial.group().comm);
    }
}

void test_gather(Trial &trial, const Setting &setting) {
    const auto gather = GPUSHM_TEST_COLLECTIVE(Gather, gather);
    const TypePair &types = setting.types;
    const Sides &sides = setting.sides;
    for (int units : unit_counts(trial, types)) {
        Exchange exchange(trial, text("count %d", units));
        Items out;
        Items in;
        if (sides.own == upper) {
            out = exchange.source(*types.send, units, upper);
        } else if (is_root(trial, sides)) {
            in = exchange.destination(*types.receive, units * sides.other_size);
            for (int rank = 0; rank < sides.other_size; ++rank) {
                in.expect(rank * units, exchange.sent(rank, *types.send, units, upper));
            }
        }
        gather.run(exchange, setting.form, out.address(), units, types.send->type(), in.address(),
                   units, types.receive->type(), root_argument(trial, sides), trial.group().comm);
    }
}

// The part of rank i of the upper group is source i of the root.
void test_scatter(Trial &trial, const Setting &setting) {
    const auto scatter = GPUSHM_TEST_COLLECTIVE(Scatter, scatter);
    const TypePair &types = setting.types;
    const Sides &sides = setting.sides;
    for (int units : unit_counts(trial, types)) {
        Exchange exchange(trial, text("count %d", units));
        Items out;
        Items in;
        if (sides.own == upper) {
            in = exchange.destination(*types.receive, units);
            in.expect(0, exchange.sent(0, *types.send, units, trial.group().rank));
        } else if (is_root(trial, sides)) {
            out = exchange.blank(Role::source, *types.send, units * sides.other_size);
            for (int rank = 0; rank < sides.other_size; ++rank) {
                out.fill(rank * units, exchange.sent(0, *types.send, units, rank));
            }
        }
        scatter.run(exchange, setting.form, out.address(), units, types.send->type(), in.address(),
                    units, types.receive->type(), root_argument(trial, sides), trial.group().comm);
    }
}

void test_allgather(Trial &trial, const Setting &setting) {
    const auto allgather = GPUSHM_TEST_COLLECTIVE(Allgather, allgather);
    const TypePair &types = setting.types;
    const Sides &sides = setting.sides;
    for (int units : unit_counts(trial, types)) {
        Exchange exchange(trial, text("count %d", units));
        const Items out = exchange.source(*types.send, units, sides.own);
        const Items in = exchange.destination(*types.receive, units * sides.other_size);
        for (int rank = 0; rank < sides.other_size; ++rank) {
            in.expect(rank * units, exchange.sent(rank, *types.send, units, sides.other));
        }
        allgather.run(exchange, setting.form, out.address(), units, out.type(), in.address(), units,
                      in.type(), trial.group().comm);
    }
}

// What a rank sends to rank i of the other group is its source 2 i, or 2 i + 1 in the upper group.
void test_alltoall(Trial &trial, const Setting &setting) {
    const auto alltoall = GPUSHM_TEST_COLLECTIVE(Alltoall, alltoall);
    const TypePair &types = setting.types;
    const Sides &sides = setting.sides;
    const int rank = trial.group().rank;
    for (int units : unit_counts(trial, types)) {
        Exchange exchange(trial, text("count %d", units));
        const Items out = exchange.blank(Role::source, *types.send, units * sides.other_size);
        const Items in = exchange.destination(*types.receive, units * sides.other_size);
        for (int peer = 0; peer < sides.other_size; ++peer) {
            out.fill(peer * units, exchange.sent(rank, *types.send, units, 2 * peer + sides.own));
            in.expect(peer * units,
                      exchange.sent(peer, *types.send, units, 2 * rank + sides.other));
        }
        alltoall.run(exchange, setting.form, out.address(), units, out.type(), in.address(), units,
                     in.type(), trial.group().comm);
    }
}

// The values of the ranks of the upper group are those of ranks from 100 on.
constexpr int kUpperValues = 100;

Bytes sum_of_other_side(const Reduction &sum, const Sides &sides, int count) {
    const int first = sides.other == lower ? 0 : kUpperValues;
    Bytes result = sum.values(first, count);
    for (int rank = 1; rank < sides.other_size; ++rank) {
        sum.combine(sum.values(first + rank, count), result);
    }
    return result;
}

void fill_with_values(const Items &items, const Trial &trial, const Reduction &sum,
                      const Sides &sides, int count) {
    items.fill(0, sum.values(trial.group().rank + (sides.own == lower ? 0 : kUpperValues), count));
}

void test_reduce(Trial &trial, const Setting &setting) {
    const auto reduce_to = GPUSHM_TEST_COLLECTIVE(Reduce, reduce);
    const Reduction sum = sum_of_ints();
    const Sides &sides = setting.sides;
    for (int count : {1, 1000}) {
        Exchange exchange(trial, text("count %d", count));
        Items out;
        Items in;
        if (sides.own == upper) {
            out = exchange.blank(Role::source, *sum.layout, count);
            fill_with_values(out, trial, sum, sides, count);
        } else if (is_root(trial, sides)) {
            in = exchange.destination(*sum.layout, count);
            in.expect(0, sum_of_other_side(sum, sides, count));
        }
        reduce_to.run(exchange, setting.form, out.address(), in.address(), count, MPI_INT, MPI_SUM,
                      root_argument(trial, sides), trial.group().comm);
    }
}

void test_allreduce(Trial &trial, const Setting &setting) {
    const auto allreduce = GPUSHM_TEST_COLLECTIVE(Allreduce, allreduce);
    const Reduction sum = sum_of_ints();
    for (int count : {1, 1000}) {
        Exchange exchange(trial, text("count %d", count));
        const Items out = exchange.blank(Role::source, *sum.layout, count);
        fill_with_values(out, trial, sum, setting.sides, count);
        const Items in = exchange.destination(*sum.layout, count);
        in.expect(0, sum_of_other_side(sum, setting.sides, count));
        allreduce.run(exchange, setting.form, out.address(), in.address(), count, MPI_INT, MPI_SUM,
                      trial.group().comm);
    }
}

using Test = void (*)(Trial &, const Setting &);

struct Entry {
    const char *name;
    Test test;
    bool only_ints;
};

constexpr Entry kEntries[] = {
    {"Bcast", test_bcast, false},        {"Gather", test_gather, false},
    {"Scatter", test_scatter, false},    {"Allgather", test_allgather, false},
    {"Alltoall", test_alltoall, false},  {"Reduce", test_reduce, true},
    {"Allreduce", test_allreduce, true},
};

void add_test(Registry &registry, const Group &group, const std::string &name, Test test,
              const Setting &setting) {
    registry.add(name + " on an intercommunicator, " + setting.types.name, group,
                 [setting, test](Trial &trial) { test(trial, setting); });
}

}  // namespace

void add_intercommunicator(Registry &registry) {
    if (registry.world().size < 2) {
        return;
    }
    const Sides sides(registry.world());
    const Group &group = registry.add_group(make_intercommunicator(registry.world()));
    for (const TypePair &types : few_types()) {
        add_test(registry, group, "Sendrecv", test_sendrecv, {types, Form::blocking, sides});
        for (const Entry &entry : kEntries) {
            if (entry.only_ints && types.name != "int") {
                continue;
            }
            for (Form form : forms()) {
                add_test(registry, group, name_of(entry.name, form), entry.test,
                         {types, form, sides});
            }
        }
    }
}

}  // namespace gpushm::mpi_test::operations
