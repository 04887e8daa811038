// SPDX-License-Identifier: BSD-3-Clause
// Collective operations that move data, within one group.
#include "operations_collective_call.hpp"
#include "operations_counts.hpp"
#include "operations_registry.hpp"
#include "operations_types.hpp"

#include <algorithm>
#include <array>

namespace gpushm::mpi_test::operations {
namespace {

// What tells the tests of one operation apart.
struct Setting {
    TypePair types;
    Form form;
    bool in_place;
    Largest largest;
};

// The lengths of one exchange: items that one rank sends to another, or to all.
struct Lengths {
    Lengths(const TypePair &types, int units)
        : send(units * types.send_unit), receive(units * types.receive_unit) {}
    int send;
    int receive;
};

// How the v-forms place the parts of the ranks in a buffer: in reverse order, with a gap in front
// of each. Counts grow with the rank.
struct Parts {
    Parts(int ranks, int units, int unit_items) {
        counts.resize(static_cast<size_t>(ranks));
        displacements.resize(counts.size());
        for (int rank = ranks - 1; rank >= 0; --rank) {
            counts[static_cast<size_t>(rank)] = (units + rank) * unit_items;
            displacements[static_cast<size_t>(rank)] = total + 2;
            total += 2 + counts[static_cast<size_t>(rank)];
        }
    }

    int count(int rank) const { return counts[static_cast<size_t>(rank)]; }
    int displacement(int rank) const { return displacements[static_cast<size_t>(rank)]; }

    std::vector<int> counts;
    std::vector<int> displacements;
    int total = 0;  // items
};

const void *in_place_or(const Items &items, bool in_place) {
    return in_place ? MPI_IN_PLACE : items.address();
}

void test_bcast(Trial &trial, const Setting &setting) {
    const auto bcast = GPUSHM_TEST_COLLECTIVE(Bcast, bcast);
    const TypePair &types = setting.types;
    const Group &group = trial.group();
    for (int units : unit_counts(trial, types, setting.largest)) {
        for (int root : trial.roots()) {
            const Lengths length(types, units);
            Exchange exchange(trial, text("count %d, root %d", length.send, root));
            Items data;
            if (group.rank == root) {
                data = exchange.source(*types.send, length.send);
            } else {
                data = exchange.destination(*types.receive, length.receive);
                data.expect(0, exchange.sent(root, *types.send, length.send));
            }
            bcast.run(exchange, setting.form, data.address(), data.count(), data.type(), root,
                      group.comm);
        }
    }
}

void test_gather(Trial &trial, const Setting &setting) {
    const auto gather = GPUSHM_TEST_COLLECTIVE(Gather, gather);
    const TypePair &types = setting.types;
    const Group &group = trial.group();
    for (int units : unit_counts(trial, types, setting.largest)) {
        for (int root : trial.roots()) {
            const Lengths length(types, units);
            Exchange exchange(trial, text("count %d, root %d", length.send, root));
            const bool is_root = group.rank == root;
            const bool in_place = is_root && setting.in_place;
            const Items own = in_place ? Items() : exchange.source(*types.send, length.send);
            Items all;
            if (is_root) {
                all = exchange.destination(*types.receive, length.receive * group.size);
                for (int rank = 0; rank < group.size; ++rank) {
                    const Bytes part = exchange.sent(rank, *types.send, length.send);
                    if (rank == root && in_place) {
                        all.fill(rank * length.receive, part);
                    } else {
                        all.expect(rank * length.receive, part);
                    }
                }
            }
            gather.run(exchange, setting.form, in_place_or(own, in_place), length.send,
                       types.send->type(), all.address(), length.receive, types.receive->type(),
                       root, group.comm);
        }
    }
}

void test_gatherv(Trial &trial, const Setting &setting) {
    const auto gatherv = GPUSHM_TEST_COLLECTIVE(Gatherv, gatherv);
    const TypePair &types = setting.types;
    const Group &group = trial.group();
    for (int units : unit_counts(trial, types, setting.largest)) {
        for (int root : trial.roots()) {
            const Parts sends(group.size, units, types.send_unit);
            const Parts receives(group.size, units, types.receive_unit);
            Exchange exchange(trial, text("count %d, root %d", units, root));
            const bool is_root = group.rank == root;
            const bool in_place = is_root && setting.in_place;
            const int own_count = sends.count(group.rank);
            const Items own = in_place ? Items() : exchange.source(*types.send, own_count);
            Items all;
            if (is_root) {
                all = exchange.destination(*types.receive, receives.total);
                for (int rank = 0; rank < group.size; ++rank) {
                    const Bytes part = exchange.sent(rank, *types.send, sends.count(rank));
                    if (rank == root && in_place) {
                        all.fill(receives.displacement(rank), part);
                    } else {
                        all.expect(receives.displacement(rank), part);
                    }
                }
            }
            gatherv.run(exchange, setting.form, in_place_or(own, in_place), own_count,
                        types.send->type(), all.address(), receives.counts.data(),
                        receives.displacements.data(), types.receive->type(), root, group.comm);
        }
    }
}

void test_scatter(Trial &trial, const Setting &setting) {
    const auto scatter = GPUSHM_TEST_COLLECTIVE(Scatter, scatter);
    const TypePair &types = setting.types;
    const Group &group = trial.group();
    for (int units : unit_counts(trial, types, setting.largest)) {
        for (int root : trial.roots()) {
            const Lengths length(types, units);
            Exchange exchange(trial, text("count %d, root %d", length.send, root));
            const bool is_root = group.rank == root;
            const bool in_place = is_root && setting.in_place;
            // The rank's own part is item group.rank of the root's; every rank knows all of it.
            const Bytes all = exchange.sent(root, *types.send, length.send * group.size);
            const size_t part = all.size() / static_cast<size_t>(group.size);
            const Items out =
                is_root ? exchange.source(*types.send, length.send * group.size) : Items();
            const Items in =
                in_place ? Items() : exchange.destination(*types.receive, length.receive);
            if (!in_place) {
                const auto first = all.begin() + static_cast<ptrdiff_t>(part) * group.rank;
                in.expect(0, Bytes(first, first + static_cast<ptrdiff_t>(part)));
            }
            scatter.run(exchange, setting.form, out.address(), length.send, types.send->type(),
                        in_place ? MPI_IN_PLACE : in.address(), length.receive,
                        types.receive->type(), root, group.comm);
        }
    }
}

void test_scatterv(Trial &trial, const Setting &setting) {
    const auto scatterv = GPUSHM_TEST_COLLECTIVE(Scatterv, scatterv);
    const TypePair &types = setting.types;
    const Group &group = trial.group();
    for (int units : unit_counts(trial, types, setting.largest)) {
        for (int root : trial.roots()) {
            const Parts sends(group.size, units, types.send_unit);
            const Parts receives(group.size, units, types.receive_unit);
            Exchange exchange(trial, text("count %d, root %d", units, root));
            const bool is_root = group.rank == root;
            const bool in_place = is_root && setting.in_place;
            const int own_count = receives.count(group.rank);
            // Source `rank` of the root is the part of that rank.
            Items out;
            if (is_root) {
                out = exchange.blank(Role::source, *types.send, sends.total);
                for (int rank = 0; rank < group.size; ++rank) {
                    out.fill(sends.displacement(rank),
                             exchange.sent(root, *types.send, sends.count(rank), rank));
                }
            }
            const Items in = in_place ? Items() : exchange.destination(*types.receive, own_count);
            if (!in_place) {
                in.expect(0, exchange.sent(root, *types.send, sends.count(group.rank), group.rank));
            }
            scatterv.run(exchange, setting.form, out.address(), sends.counts.data(),
                         sends.displacements.data(), types.send->type(),
                         in_place ? MPI_IN_PLACE : in.address(), own_count, types.receive->type(),
                         root, group.comm);
        }
    }
}

void test_allgather(Trial &trial, const Setting &setting) {
    const auto allgather = GPUSHM_TEST_COLLECTIVE(Allgather, allgather);
    const TypePair &types = setting.types;
    const Group &group = trial.group();
    for (int units : unit_counts(trial, types, setting.largest)) {
        const Lengths length(types, units);
        Exchange exchange(trial, text("count %d", length.send));
        const Items own = setting.in_place ? Items() : exchange.source(*types.send, length.send);
        const Items all = exchange.destination(*types.receive, length.receive * group.size);
        for (int rank = 0; rank < group.size; ++rank) {
            const Bytes part = exchange.sent(rank, *types.send, length.send);
            if (rank == group.rank && setting.in_place) {
                all.fill(rank * length.receive, part);
            } else {
                all.expect(rank * length.receive, part);
            }
        }
        allgather.run(exchange, setting.form, in_place_or(own, setting.in_place), length.send,
                      types.send->type(), all.address(), length.receive, types.receive->type(),
                      group.comm);
    }
}

void test_allgatherv(Trial &trial, const Setting &setting) {
    const auto allgatherv = GPUSHM_TEST_COLLECTIVE(Allgatherv, allgatherv);
    const TypePair &types = setting.types;
    const Group &group = trial.group();
    for (int units : unit_counts(trial, types, setting.largest)) {
        const Parts sends(group.size, units, types.send_unit);
        const Parts receives(group.size, units, types.receive_unit);
        Exchange exchange(trial, text("count %d", units));
        const int own_count = sends.count(group.rank);
        const Items own = setting.in_place ? Items() : exchange.source(*types.send, own_count);
        const Items all = exchange.destination(*types.receive, receives.total);
        for (int rank = 0; rank < group.size; ++rank) {
            const Bytes part = exchange.sent(rank, *types.send, sends.count(rank));
            if (rank == group.rank && setting.in_place) {
                all.fill(receives.displacement(rank), part);
            } else {
                all.expect(receives.displacement(rank), part);
            }
        }
        allgatherv.run(exchange, setting.form, in_place_or(own, setting.in_place), own_count,
                       types.send->type(), all.address(), receives.counts.data(),
                       receives.displacements.data(), types.receive->type(), group.comm);
    }
}

// In the forms of MPI_Alltoall source `peer` of a rank is what it sends to that peer.
void test_alltoall(Trial &trial, const Setting &setting) {
    const auto alltoall = GPUSHM_TEST_COLLECTIVE(Alltoall, alltoall);
    const TypePair &types = setting.types;
    const Group &group = trial.group();
    for (int units : unit_counts(trial, types, setting.largest)) {
        const Lengths length(types, units);
        Exchange exchange(trial, text("count %d", length.send));
        const Items in = exchange.destination(*types.receive, length.receive * group.size);
        Items out;
        if (!setting.in_place) {
            out = exchange.blank(Role::source, *types.send, length.send * group.size);
        }
        for (int peer = 0; peer < group.size; ++peer) {
            const Bytes sent = exchange.sent(group.rank, *types.send, length.send, peer);
            const Bytes received = exchange.sent(peer, *types.send, length.send, group.rank);
            if (setting.in_place) {
                in.fill(peer * length.receive, sent);
                in.change(peer * length.receive, received);
            } else {
                out.fill(peer * length.send, sent);
                in.expect(peer * length.receive, received);
            }
        }
        alltoall.run(exchange, setting.form, in_place_or(out, setting.in_place), length.send,
                     types.send->type(), in.address(), length.receive, types.receive->type(),
                     group.comm);
    }
}

// In place, what two ranks send each other has one length; else it may have two.
int pair_units(int units, int from, int to, bool in_place) {
    return units + (in_place ? from + to : 2 * from + to);
}

// The parts of the peers in one buffer of MPI_Alltoallv.
struct PeerParts {
    // `sending`: of what this rank sends, else of what it receives.
    PeerParts(const Group &group, int units, int unit_items, bool in_place, bool sending) {
        for (int peer = 0; peer < group.size; ++peer) {
            const int from = sending ? group.rank : peer;
            const int to = sending ? peer : group.rank;
            counts.push_back(pair_units(units, from, to, in_place) * unit_items);
            displacements.push_back(total + 1);
            total += 1 + counts.back();
        }
    }

    std::vector<int> counts;
    std::vector<int> displacements;
    int total = 0;
};

void test_alltoallv(Trial &trial, const Setting &setting) {
    const auto alltoallv = GPUSHM_TEST_COLLECTIVE(Alltoallv, alltoallv);
    const TypePair &types = setting.types;
    const Group &group = trial.group();
    for (int units : unit_counts(trial, types, setting.largest)) {
        const PeerParts sends(group, units, types.send_unit, setting.in_place, true);
        const PeerParts receives(group, units, types.receive_unit, setting.in_place, false);
        Exchange exchange(trial, text("count %d", units));
        const Items in = exchange.destination(*types.receive, receives.total);
        Items out;
        if (!setting.in_place) {
            out = exchange.blank(Role::source, *types.send, sends.total);
        }
        for (int peer = 0; peer < group.size; ++peer) {
            const auto at = static_cast<size_t>(peer);
            const int incoming = pair_units(units, peer, group.rank, setting.in_place);
            const Bytes sent = exchange.sent(group.rank, *types.send, sends.counts[at], peer);
            const Bytes received =
                exchange.sent(peer, *types.send, incoming * types.send_unit, group.rank);
            if (setting.in_place) {
                in.fill(receives.displacements[at], sent);
                in.change(receives.displacements[at], received);
            } else {
                out.fill(sends.displacements[at], sent);
                in.expect(receives.displacements[at], received);
            }
        }
        alltoallv.run(exchange, setting.form, in_place_or(out, setting.in_place),
                      sends.counts.data(), sends.displacements.data(), types.send->type(),
                      in.address(), receives.counts.data(), receives.displacements.data(),
                      types.receive->type(), group.comm);
    }
}

// The parts of MPI_Alltoallw: ints, vectors and structs by turns, with displacements in bytes. Both
// ranks of a pair find the same type.
struct MixedParts {
    explicit MixedParts(const Group &group, int units) {
        ptrdiff_t at = 0;
        for (int peer = 0; peer < group.size; ++peer) {
            const LayoutPtr &layout = layouts[static_cast<size_t>(peer + group.rank) % 3];
            of_peer.push_back(layout);
            types.push_back(layout->type());
            counts.push_back(units + peer + group.rank);
            displacements.push_back(static_cast<int>(at));
            at += (layout->span(counts.back()).end + 31) / 16 * 16;
        }
        total = static_cast<int>(at);
    }

    std::array<LayoutPtr, 3> layouts{make_int(), make_vector(), make_struct()};
    std::vector<LayoutPtr> of_peer;
    std::vector<MPI_Datatype> types;
    std::vector<int> counts;
    std::vector<int> displacements;
    int total = 0;  // bytes
};

void test_alltoallw(Trial &trial, const Setting &setting) {
    const auto alltoallw = GPUSHM_TEST_COLLECTIVE(Alltoallw, alltoallw);
    const Group &group = trial.group();
    const LayoutPtr bytes = make_byte();
    for (int units : unit_counts(trial, setting.types)) {
        const MixedParts parts(group, units);
        Exchange exchange(trial, text("count %d", units));
        const Items in = exchange.destination(*bytes, parts.total);
        Items out;
        if (!setting.in_place) {
            out = exchange.blank(Role::source, *bytes, parts.total);
        }
        for (int peer = 0; peer < group.size; ++peer) {
            const auto at = static_cast<size_t>(peer);
            const Layout &layout = *parts.of_peer[at];
            const Bytes sent = exchange.sent(group.rank, layout, parts.counts[at], peer);
            const Bytes received = exchange.sent(peer, layout, parts.counts[at], group.rank);
            const Items to = in.part(parts.displacements[at], layout, parts.counts[at]);
            if (setting.in_place) {
                to.fill(0, sent);
                to.change(0, received);
            } else {
                out.part(parts.displacements[at], layout, parts.counts[at]).fill(0, sent);
                to.expect(0, received);
            }
        }
        alltoallw.run(exchange, setting.form, in_place_or(out, setting.in_place),
                      parts.counts.data(), parts.displacements.data(), parts.types.data(),
                      in.address(), parts.counts.data(), parts.displacements.data(),
                      parts.types.data(), group.comm);
    }
}

using Test = void (*)(Trial &, const Setting &);

struct Entry {
    const char *name;
    Test test;
    bool has_in_place;
    bool all_types;  // stands for the others with all types
    bool own_types;  // chooses its types itself
};

constexpr Entry kEntries[] = {
    {"Bcast", test_bcast, false, true, false},
    {"Gather", test_gather, true, true, false},
    {"Gatherv", test_gatherv, true, false, false},
    {"Scatter", test_scatter, true, false, false},
    {"Scatterv", test_scatterv, true, false, false},
    {"Allgather", test_allgather, true, true, false},
    {"Allgatherv", test_allgatherv, true, false, false},
    {"Alltoall", test_alltoall, true, true, false},
    {"Alltoallv", test_alltoallv, true, false, false},
    {"Alltoallw", test_alltoallw, true, false, true},
};

std::vector<TypePair> types_of(const Entry &entry, Form form, bool in_place) {
    if (entry.own_types) {
        return {same_type(make_int())};
    }
    return entry.all_types && form == Form::blocking && !in_place ? all_types() : few_types();
}

void add_entry(Registry &registry, const Entry &entry, Form form, bool in_place) {
    const std::string name = name_of(entry.name, form) + (in_place ? " in place" : "");
    for (const TypePair &types : types_of(entry, form, in_place)) {
        const Largest largest = in_place ? Largest::medium : large_if_ints(types);
        const Setting setting{types, form, in_place, largest};
        const auto run = [setting, test = entry.test](Trial &trial) { test(trial, setting); };
        const std::string what = entry.own_types ? "mixed types" : types.name;
        registry.add(name + ", " + what, run);
        if (types.name == "int" || types.name == "vector") {
            registry.add(name + " on MPI_COMM_SELF, " + what, registry.self(), run);
        }
    }
}

}  // namespace

void add_collectives(Registry &registry) {
    for (const Entry &entry : kEntries) {
        for (Form form : forms()) {
            add_entry(registry, entry, form, false);
            if (entry.has_in_place) {
                add_entry(registry, entry, form, true);
            }
        }
    }
}

}  // namespace gpushm::mpi_test::operations
