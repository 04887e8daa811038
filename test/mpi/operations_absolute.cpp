// SPDX-License-Identifier: BSD-3-Clause
// Types with absolute addresses, which are used with MPI_BOTTOM.
#include "operations_counts.hpp"
#include "operations_registry.hpp"
#include "operations_types.hpp"

namespace gpushm::mpi_test::operations {
namespace {

constexpr int kTag = 8;

// All items that it is made of, each where it is.
class AbsoluteType {
public:
    explicit AbsoluteType(const std::vector<Items> &list) {
        std::vector<int> counts;
        std::vector<MPI_Aint> addresses;
        std::vector<MPI_Datatype> types;
        for (const Items &items : list) {
            counts.push_back(items.count());
            types.push_back(items.type());
            addresses.emplace_back();
            MPI_Get_address(items.address(), &addresses.back());
        }
        MPI_Type_create_struct(static_cast<int>(list.size()), counts.data(), addresses.data(),
                               types.data(), &type_);
        MPI_Type_commit(&type_);
    }

    // The first of several parts of the items, `extent` bytes after each other.
    AbsoluteType(const Items &items, int count, MPI_Aint extent) {
        MPI_Aint address;
        MPI_Get_address(items.address(), &address);
        MPI_Datatype part;
        MPI_Type_create_hindexed(1, &count, &address, items.type(), &part);
        MPI_Type_create_resized(part, address, extent, &type_);
        MPI_Type_free(&part);
        MPI_Type_commit(&type_);
    }

    // An int and items of ints.
    AbsoluteType(const int *value, const Items &items) {
        const int counts[] = {1, items.count()};
        MPI_Aint addresses[2];
        MPI_Get_address(value, &addresses[0]);
        MPI_Get_address(items.address(), &addresses[1]);
        MPI_Type_create_hindexed(2, counts, addresses, MPI_INT, &type_);
        MPI_Type_commit(&type_);
    }

    ~AbsoluteType() { MPI_Type_free(&type_); }
    AbsoluteType(const AbsoluteType &) = delete;
    AbsoluteType &operator=(const AbsoluteType &) = delete;

    MPI_Datatype get() const { return type_; }

private:
    MPI_Datatype type_;
};

void sendrecv(Exchange &exchange, const Trial &trial, const AbsoluteType &out,
              const AbsoluteType &in) {
    MPI_Status status{};
    exchange.require(MPI_Sendrecv(MPI_BOTTOM, 1, out.get(), trial.right(), kTag, MPI_BOTTOM, 1,
                                  in.get(), trial.left(), kTag, trial.group().comm, &status),
                     "MPI_Sendrecv");
    exchange.check_status(status, trial.left(), kTag, in.get(), 1);
}

void test_sendrecv(Trial &trial, const TypePair &types) {
    for (int units : unit_counts(trial, types, large_if_ints(types))) {
        Exchange exchange(trial, text("count %d", units));
        const Items from = exchange.source(*types.send, units);
        const Items to = exchange.destination(*types.receive, units);
        to.expect(0, exchange.sent(trial.left(), *types.send, units));
        const AbsoluteType out({from});
        const AbsoluteType in({to});
        exchange.run([&] { sendrecv(exchange, trial, out, in); });
    }
}

// One message from two buffers, which may lie in two kinds of memory, and into two others.
void test_two_buffers(Trial &trial, const TypePair &types) {
    for (int units : unit_counts(trial, types, large_if_ints(types))) {
        Exchange exchange(trial, text("count %d", units));
        const Items from[] = {exchange.source(*types.send, units),
                              exchange.in_out(*types.send, units, 1)};
        const Items to[] = {exchange.destination(*types.receive, units),
                            exchange.blank(Role::source, *types.receive, units)};
        for (int i : {0, 1}) {
            to[i].expect(0, exchange.sent(trial.left(), *types.send, units, i));
        }
        const AbsoluteType out({from[0], from[1]});
        const AbsoluteType in({to[0], to[1]});
        exchange.run([&] { sendrecv(exchange, trial, out, in); });
    }
}

void test_replace(Trial &trial, const TypePair &types) {
    for (int units : unit_counts(trial, types)) {
        Exchange exchange(trial, text("count %d", units));
        const Items items = exchange.in_out(*types.send, units);
        items.change(0, exchange.sent(trial.left(), *types.send, units));
        const AbsoluteType type({items});
        exchange.run([&] {
            exchange.require(
                MPI_Sendrecv_replace(MPI_BOTTOM, 1, type.get(), trial.right(), kTag, trial.left(),
                                     kTag, trial.group().comm, MPI_STATUS_IGNORE),
                "MPI_Sendrecv_replace");
        });
    }
}

void test_pack(Trial &trial, const TypePair &types) {
    const MPI_Comm comm = trial.group().comm;
    for (int units : unit_counts(trial, types)) {
        Exchange exchange(trial, text("count %d", units));
        const LayoutPtr bytes = make_byte();
        const Items from = exchange.source(*types.send, units);
        const Items to = exchange.destination(*types.receive, units);
        to.expect(0, from.pack(0, units));
        const AbsoluteType out({from});
        const AbsoluteType in({to});
        int size = 0;
        exchange.require(MPI_Pack_size(1, out.get(), comm, &size), "MPI_Pack_size");
        const Items packed = exchange.blank(Role::source, *bytes, size);
        packed.ignore(static_cast<size_t>(size));
        exchange.run([&] {
            int end = 0;
            int position = 0;
            exchange.require(MPI_Pack(MPI_BOTTOM, 1, out.get(), packed.address(), size, &end, comm),
                             "MPI_Pack");
            exchange.require(
                MPI_Unpack(packed.address(), end, &position, MPI_BOTTOM, 1, in.get(), comm),
                "MPI_Unpack");
        });
    }
}

// The stack and the heap are 40 TB apart, and one of the two may be GPU memory.
void test_external_from_stack(Trial &trial) {
    constexpr int kCount = 1000;
    Exchange exchange(trial, "on the stack and elsewhere");
    const LayoutPtr ints = make_int();
    const Items from = exchange.source(*ints, kCount);
    const Items to = exchange.destination(*ints, kCount);
    to.expect(0, exchange.sent(trial.group().rank, *ints, kCount));
    const int sent = 1000 + trial.group().rank;
    int received = 0;
    const AbsoluteType out(&sent, from);
    const AbsoluteType in(&received, to);
    MPI_Aint size = 0;
    MPI_Pack_external_size("external32", 1, out.get(), &size);
    Bytes packed(static_cast<size_t>(size));
    exchange.run([&] {
        MPI_Aint end = 0;
        MPI_Aint position = 0;
        exchange.require(
            MPI_Pack_external("external32", MPI_BOTTOM, 1, out.get(), packed.data(), size, &end),
            "MPI_Pack_external");
        exchange.require(MPI_Unpack_external("external32", packed.data(), end, &position,
                                             MPI_BOTTOM, 1, in.get()),
                         "MPI_Unpack_external");
        if (received != sent) {
            exchange.fail(text("%d on the stack instead of %d", received, sent));
        }
    });
}

void test_bcast(Trial &trial, const TypePair &types) {
    const Group &group = trial.group();
    for (int units : unit_counts(trial, types)) {
        Exchange exchange(trial, text("count %d", units));
        Items data;
        if (group.rank == 0) {
            data = exchange.source(*types.send, units);
        } else {
            data = exchange.destination(*types.receive, units);
            data.expect(0, exchange.sent(0, *types.send, units));
        }
        const AbsoluteType type({data});
        exchange.run([&] {
            exchange.require(MPI_Bcast(MPI_BOTTOM, 1, type.get(), 0, group.comm), "MPI_Bcast");
        });
    }
}

void test_gather(Trial &trial, const TypePair &types) {
    const Group &group = trial.group();
    for (int units : unit_counts(trial, types)) {
        Exchange exchange(trial, text("count %d", units));
        const Items from = exchange.source(*types.send, units);
        // Also where nothing is received: the type has to be a valid one.
        const Items to = exchange.destination(*types.receive, units * group.size);
        for (int rank = 0; rank < group.size && group.rank == 0; ++rank) {
            to.expect(rank * units, exchange.sent(rank, *types.send, units));
        }
        const AbsoluteType out({from});
        const AbsoluteType in(to, units, units * types.receive->bounds().extent);
        exchange.run([&] {
            exchange.require(
                MPI_Gather(MPI_BOTTOM, 1, out.get(), MPI_BOTTOM, 1, in.get(), 0, group.comm),
                "MPI_Gather");
        });
    }
}

void test_allgather(Trial &trial, const TypePair &types) {
    const Group &group = trial.group();
    for (int units : unit_counts(trial, types)) {
        Exchange exchange(trial, text("count %d", units));
        const Items from = exchange.source(*types.send, units);
        const Items to = exchange.destination(*types.receive, units * group.size);
        for (int rank = 0; rank < group.size; ++rank) {
            to.expect(rank * units, exchange.sent(rank, *types.send, units));
        }
        const AbsoluteType out({from});
        const AbsoluteType in(to, units, units * types.receive->bounds().extent);
        exchange.run([&] {
            exchange.require(
                MPI_Allgather(MPI_BOTTOM, 1, out.get(), MPI_BOTTOM, 1, in.get(), group.comm),
                "MPI_Allgather");
        });
    }
}

void test_alltoall(Trial &trial, const TypePair &types) {
    const Group &group = trial.group();
    for (int units : unit_counts(trial, types)) {
        Exchange exchange(trial, text("count %d", units));
        const Items from = exchange.blank(Role::source, *types.send, units * group.size);
        const Items to = exchange.destination(*types.receive, units * group.size);
        for (int peer = 0; peer < group.size; ++peer) {
            from.fill(peer * units, exchange.sent(group.rank, *types.send, units, peer));
            to.expect(peer * units, exchange.sent(peer, *types.send, units, group.rank));
        }
        const AbsoluteType out(from, units, units * types.send->bounds().extent);
        const AbsoluteType in(to, units, units * types.receive->bounds().extent);
        exchange.run([&] {
            exchange.require(
                MPI_Alltoall(MPI_BOTTOM, 1, out.get(), MPI_BOTTOM, 1, in.get(), group.comm),
                "MPI_Alltoall");
        });
    }
}

}  // namespace

void add_absolute_addresses(Registry &registry) {
    using Test = void (*)(Trial &, const TypePair &);
    const std::pair<const char *, Test> tests[] = {
        {"Sendrecv", test_sendrecv},
        {"Sendrecv of two buffers", test_two_buffers},
        {"Sendrecv_replace", test_replace},
        {"Pack/Unpack", test_pack},
        {"Bcast", test_bcast},
        {"Gather", test_gather},
        {"Allgather", test_allgather},
        {"Alltoall", test_alltoall},
    };
    registry.add("Pack_external/Unpack_external with MPI_BOTTOM, stack and others",
                 test_external_from_stack);
    for (const auto &[name, test] : tests) {
        for (const TypePair &types : few_types()) {
            registry.add(std::string(name) + " with MPI_BOTTOM, " + types.name,
                         [types, test = test](Trial &trial) { test(trial, types); });
        }
    }
}

}  // namespace gpushm::mpi_test::operations
