// SPDX-License-Identifier: BSD-3-Clause
// Neighbourhood collectives: on a line of ranks, of which the ends have one neighbour only, and on
// a directed graph.
#include "operations_collective_call.hpp"
#include "operations_counts.hpp"
#include "operations_registry.hpp"
#include "operations_types.hpp"

#include <algorithm>

namespace gpushm::mpi_test::operations {
namespace {

// The neighbours of a rank in the order of MPI; MPI_PROC_NULL where there is none.
struct Neighbors {
    std::vector<int> sources;
    std::vector<int> destinations;
};

Neighbors on_line(const Group &group) {
    const int before = group.rank > 0 ? group.rank - 1 : MPI_PROC_NULL;
    const int behind = group.rank + 1 < group.size ? group.rank + 1 : MPI_PROC_NULL;
    return {{before, behind}, {before, behind}};
}

// Each rank sends to the next one and to the one after that.
Neighbors on_graph(const Group &group) {
    Neighbors neighbors;
    for (int step = 1; step <= std::min(2, group.size); ++step) {
        neighbors.sources.push_back((group.rank + 2 * group.size - step) % group.size);
        neighbors.destinations.push_back((group.rank + step) % group.size);
    }
    return neighbors;
}

MPI_Comm make_line(const Group &world) {
    const int periodic = 0;
    MPI_Comm comm;
    MPI_Cart_create(world.comm, 1, &world.size, &periodic, 0, &comm);
    return comm;
}

MPI_Comm make_graph(const Group &world) {
    const Neighbors neighbors = on_graph(world);
    MPI_Comm comm;
    MPI_Dist_graph_create_adjacent(
        world.comm, static_cast<int>(neighbors.sources.size()), neighbors.sources.data(),
        MPI_UNWEIGHTED, static_cast<int>(neighbors.destinations.size()),
        neighbors.destinations.data(), MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
    return comm;
}

struct Setting {
    TypePair types;
    Form form;
    Neighbors (*neighbors)(const Group &);
};

// The parts of the neighbours in a buffer: each with a gap in front of it, in reverse order.
struct Parts {
    // `count_of` says how many items the part of a neighbour has.
    template <typename CountOf>
    Parts(const std::vector<int> &neighbors, CountOf &&count_of)
        : counts(neighbors.size()), displacements(neighbors.size()) {
        for (size_t i = neighbors.size(); i-- > 0;) {
            counts[i] = count_of(neighbors[i]);
            displacements[i] = total + 1;
            total += 1 + counts[i];
        }
    }

    std::vector<int> counts;
    std::vector<int> displacements;
    int total = 0;  // items
};

void test_allgather(Trial &trial, const Setting &setting) {
    const auto allgather = GPUSHM_TEST_COLLECTIVE(Neighbor_allgather, neighbor_allgather);
    const TypePair &types = setting.types;
    const std::vector<int> sources = setting.neighbors(trial.group()).sources;
    for (int units : unit_counts(trial, types)) {
        const int out_count = units * types.send_unit;
        const int in_count = units * types.receive_unit;
        Exchange exchange(trial, text("count %d", out_count));
        const Items out = exchange.source(*types.send, out_count);
        const Items in =
            exchange.destination(*types.receive, in_count * static_cast<int>(sources.size()));
        for (size_t i = 0; i < sources.size(); ++i) {
            if (sources[i] != MPI_PROC_NULL) {
                in.expect(static_cast<int>(i) * in_count,
                          exchange.sent(sources[i], *types.send, out_count));
            }
        }
        allgather.run(exchange, setting.form, out.address(), out_count, out.type(), in.address(),
                      in_count, in.type(), trial.group().comm);
    }
}

void test_allgatherv(Trial &trial, const Setting &setting) {
    const auto allgatherv = GPUSHM_TEST_COLLECTIVE(Neighbor_allgatherv, neighbor_allgatherv);
    const TypePair &types = setting.types;
    const Group &group = trial.group();
    const std::vector<int> sources = setting.neighbors(group).sources;
    for (int units : unit_counts(trial, types)) {
        // What a rank sends grows with its number; nobody sends nothing.
        const auto units_of = [units](int rank) {
            return rank == MPI_PROC_NULL ? 0 : units + rank;
        };
        const Parts parts(sources, [&](int rank) { return units_of(rank) * types.receive_unit; });
        const int out_count = units_of(group.rank) * types.send_unit;
        Exchange exchange(trial, text("count %d", units));
        const Items out = exchange.source(*types.send, out_count);
        const Items in = exchange.destination(*types.receive, parts.total);
        for (size_t i = 0; i < sources.size(); ++i) {
            if (sources[i] != MPI_PROC_NULL) {
                in.expect(
                    parts.displacements[i],
                    exchange.sent(sources[i], *types.send, units_of(sources[i]) * types.send_unit));
            }
        }
        allgatherv.run(exchange, setting.form, out.address(), out_count, out.type(), in.address(),
                       parts.counts.data(), parts.displacements.data(), in.type(), group.comm);
    }
}

// In the forms of alltoall source `destination` of a rank is what it sends there.
void test_alltoall(Trial &trial, const Setting &setting) {
    const auto alltoall = GPUSHM_TEST_COLLECTIVE(Neighbor_alltoall, neighbor_alltoall);
    const TypePair &types = setting.types;
    const Group &group = trial.group();
    const Neighbors neighbors = setting.neighbors(group);
    for (int units : unit_counts(trial, types)) {
        const int out_count = units * types.send_unit;
        const int in_count = units * types.receive_unit;
        Exchange exchange(trial, text("count %d", out_count));
        const Items out = exchange.blank(
            Role::source, *types.send, out_count * static_cast<int>(neighbors.destinations.size()));
        const Items in = exchange.destination(
            *types.receive, in_count * static_cast<int>(neighbors.sources.size()));
        int at = 0;
        for (int to : neighbors.destinations) {
            out.fill(out_count * at++, exchange.sent(group.rank, *types.send, out_count, to));
        }
        at = 0;
        for (int from : neighbors.sources) {
            if (from != MPI_PROC_NULL) {
                in.expect(in_count * at, exchange.sent(from, *types.send, out_count, group.rank));
            }
            ++at;
        }
        alltoall.run(exchange, setting.form, out.address(), out_count, out.type(), in.address(),
                     in_count, in.type(), group.comm);
    }
}

int pair_units(int units, int from, int to) {
    return from == MPI_PROC_NULL || to == MPI_PROC_NULL ? 0 : units + 2 * from + to;
}

void test_alltoallv(Trial &trial, const Setting &setting) {
    const auto alltoallv = GPUSHM_TEST_COLLECTIVE(Neighbor_alltoallv, neighbor_alltoallv);
    const TypePair &types = setting.types;
    const Group &group = trial.group();
    const Neighbors neighbors = setting.neighbors(group);
    for (int units : unit_counts(trial, types)) {
        const Parts sends(neighbors.destinations, [&](int to) {
            return pair_units(units, group.rank, to) * types.send_unit;
        });
        const Parts receives(neighbors.sources, [&](int from) {
            return pair_units(units, from, group.rank) * types.receive_unit;
        });
        Exchange exchange(trial, text("count %d", units));
        const Items out = exchange.blank(Role::source, *types.send, sends.total);
        const Items in = exchange.destination(*types.receive, receives.total);
        for (size_t i = 0; i < neighbors.destinations.size(); ++i) {
            out.fill(sends.displacements[i], exchange.sent(group.rank, *types.send, sends.counts[i],
                                                           neighbors.destinations[i]));
        }
        for (size_t i = 0; i < neighbors.sources.size(); ++i) {
            const int from = neighbors.sources[i];
            const int count = pair_units(units, from, group.rank) * types.send_unit;
            in.expect(receives.displacements[i],
                      exchange.sent(from, *types.send, count, group.rank));
        }
        alltoallv.run(exchange, setting.form, out.address(), sends.counts.data(),
                      sends.displacements.data(), out.type(), in.address(), receives.counts.data(),
                      receives.displacements.data(), in.type(), group.comm);
    }
}

// The parts of MPI_Neighbor_alltoallw: vectors and structs by turns, displacements in bytes.
struct MixedParts {
    MixedParts(const Group &group, const std::vector<int> &neighbors, int count) {
        for (int neighbor : neighbors) {
            const bool exists = neighbor != MPI_PROC_NULL;
            const LayoutPtr &layout = exists && (neighbor + group.rank) % 2 != 0 ? record : vector;
            of_neighbor.push_back(layout);
            types.push_back(layout->type());
            counts.push_back(exists ? count : 0);
            displacements.push_back(total);
            total += (layout->span(count).end + 31) / 16 * 16;
        }
    }

    LayoutPtr vector = make_vector();
    LayoutPtr record = make_struct();
    std::vector<LayoutPtr> of_neighbor;
    std::vector<MPI_Datatype> types;
    std::vector<int> counts;
    std::vector<MPI_Aint> displacements;
    MPI_Aint total = 0;  // bytes
};

void test_alltoallw(Trial &trial, const Setting &setting) {
    const auto alltoallw = GPUSHM_TEST_COLLECTIVE(Neighbor_alltoallw, neighbor_alltoallw);
    const Group &group = trial.group();
    const Neighbors neighbors = setting.neighbors(group);
    const LayoutPtr bytes = make_byte();
    for (int units : unit_counts(trial, setting.types)) {
        const MixedParts sends(group, neighbors.destinations, units);
        const MixedParts receives(group, neighbors.sources, units);
        Exchange exchange(trial, text("count %d", units));
        const Items out = exchange.blank(Role::source, *bytes, static_cast<int>(sends.total));
        const Items in = exchange.destination(*bytes, static_cast<int>(receives.total));
        for (size_t i = 0; i < neighbors.destinations.size(); ++i) {
            const Layout &layout = *sends.of_neighbor[i];
            out.part(sends.displacements[i], layout, sends.counts[i])
                .fill(0, exchange.sent(group.rank, layout, sends.counts[i],
                                       neighbors.destinations[i]));
        }
        for (size_t i = 0; i < neighbors.sources.size(); ++i) {
            const Layout &layout = *receives.of_neighbor[i];
            in.part(receives.displacements[i], layout, receives.counts[i])
                .expect(
                    0, exchange.sent(neighbors.sources[i], layout, receives.counts[i], group.rank));
        }
        alltoallw.run(exchange, setting.form, out.address(), sends.counts.data(),
                      sends.displacements.data(), sends.types.data(), in.address(),
                      receives.counts.data(), receives.displacements.data(), receives.types.data(),
                      group.comm);
    }
}

using Test = void (*)(Trial &, const Setting &);

struct Entry {
    const char *name;
    Test test;
    bool own_types;
};

constexpr Entry kEntries[] = {
    {"Neighbor_allgather", test_allgather, false}, {"Neighbor_allgatherv", test_allgatherv, false},
    {"Neighbor_alltoall", test_alltoall, false},   {"Neighbor_alltoallv", test_alltoallv, false},
    {"Neighbor_alltoallw", test_alltoallw, true},
};

void add_on(Registry &registry, const Group &group, const char *where,
            Neighbors (*neighbors)(const Group &)) {
    for (const Entry &entry : kEntries) {
        for (Form form : forms()) {
            const std::string name = name_of(entry.name, form) + " on " + where + ", ";
            const std::vector<TypePair> list =
                entry.own_types ? std::vector<TypePair>{same_type(make_int())} : few_types();
            for (const TypePair &types : list) {
                const Setting setting{types, form, neighbors};
                registry.add(name + (entry.own_types ? "mixed types" : types.name), group,
                             [setting, test = entry.test](Trial &trial) { test(trial, setting); });
            }
        }
    }
}

}  // namespace

void add_neighbors(Registry &registry) {
    const Group &line = registry.add_group(make_line(registry.world()));
    const Group &graph = registry.add_group(make_graph(registry.world()));
    add_on(registry, line, "a cartesian communicator", on_line);
    add_on(registry, graph, "a graph communicator", on_graph);
}

}  // namespace gpushm::mpi_test::operations
