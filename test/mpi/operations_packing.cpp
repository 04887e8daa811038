// SPDX-License-Identifier: BSD-3-Clause
// MPI_Pack and MPI_Unpack, and messages that are packed on one side only.
#include "operations_counts.hpp"
#include "operations_registry.hpp"
#include "operations_types.hpp"

#include <array>

namespace gpushm::mpi_test::operations {
namespace {

constexpr int kTag = 7;
const char *const kExternal = "external32";

int pack_size(Exchange &exchange, const Layout &layout, int count, MPI_Comm comm) {
    int size = 0;
    exchange.require(MPI_Pack_size(count, layout.type(), comm, &size), "MPI_Pack_size");
    return size;
}

// Packs the first item and then the others. Returns how many bytes that makes.
int pack(Exchange &exchange, const Items &items, const Items &packed, MPI_Comm comm) {
    int position = 0;
    exchange.require(MPI_Pack(items.address(), 1, items.type(), packed.address(), packed.count(),
                              &position, comm),
                     "MPI_Pack");
    exchange.require(MPI_Pack(items.address(1), items.count() - 1, items.type(), packed.address(),
                              packed.count(), &position, comm),
                     "MPI_Pack");
    packed.ignore(static_cast<size_t>(position));
    return position;
}

void unpack(Exchange &exchange, const Items &packed, int size, const Items &items, MPI_Comm comm) {
    int position = 0;
    exchange.require(
        MPI_Unpack(packed.address(), size, &position, items.address(), 1, items.type(), comm),
        "MPI_Unpack");
    exchange.require(MPI_Unpack(packed.address(), size, &position, items.address(1),
                                items.count() - 1, items.type(), comm),
                     "MPI_Unpack");
    if (position != size) {
        exchange.fail(text("%d B were packed, %d unpacked", size, position));
    }
}

// `role`: of the packed data's memory.
void test_there_and_back(Trial &trial, const TypePair &types, Role role) {
    const MPI_Comm comm = trial.group().comm;
    for (int units : unit_counts(trial, types, large_if_ints(types))) {
        const int count = units * types.send_unit;
        Exchange exchange(trial, text("count %d", count));
        const LayoutPtr bytes = make_byte();
        const Items from = exchange.source(*types.send, count);
        const Items packed =
            exchange.blank(role, *bytes, pack_size(exchange, *types.send, count, comm));
        const Items to = exchange.destination(*types.receive, units * types.receive_unit);
        to.expect(0, from.pack(0, count));
        exchange.run([&] {
            const int size = pack(exchange, from, packed, comm);
            unpack(exchange, packed, size, to, comm);
        });
    }
}

void test_packed_send(Trial &trial, const TypePair &types) {
    const Group &group = trial.group();
    for (int units : unit_counts(trial, types)) {
        const int count = units * types.send_unit;
        Exchange exchange(trial, text("count %d", count));
        const LayoutPtr bytes = make_byte();
        const Items from = exchange.source(*types.send, count);
        const Items packed = exchange.blank(Role::source, *bytes,
                                            pack_size(exchange, *types.send, count, group.comm));
        const Items to = exchange.destination(*types.receive, units * types.receive_unit);
        to.expect(0, exchange.sent(trial.left(), *types.send, count));
        exchange.run([&] {
            const int size = pack(exchange, from, packed, group.comm);
            MPI_Status status{};
            exchange.require(
                MPI_Sendrecv(packed.address(), size, MPI_PACKED, trial.right(), kTag, to.address(),
                             to.count(), to.type(), trial.left(), kTag, group.comm, &status),
                "MPI_Sendrecv");
            exchange.check_status(status, trial.left(), kTag, to.type(), to.count());
        });
    }
}

void test_packed_receive(Trial &trial, const TypePair &types) {
    const Group &group = trial.group();
    for (int units : unit_counts(trial, types)) {
        const int count = units * types.send_unit;
        Exchange exchange(trial, text("count %d", count));
        const LayoutPtr bytes = make_byte();
        const Items from = exchange.source(*types.send, count);
        const Items packed = exchange.blank(Role::destination, *bytes,
                                            pack_size(exchange, *types.send, count, group.comm));
        const Items to = exchange.destination(*types.receive, units * types.receive_unit);
        to.expect(0, exchange.sent(trial.left(), *types.send, count));
        exchange.run([&] {
            MPI_Status status{};
            exchange.require(MPI_Sendrecv(from.address(), count, from.type(), trial.right(), kTag,
                                          packed.address(), packed.count(), MPI_PACKED,
                                          trial.left(), kTag, group.comm, &status),
                             "MPI_Sendrecv");
            int size = 0;
            exchange.require(MPI_Get_count(&status, MPI_PACKED, &size), "MPI_Get_count");
            packed.ignore(static_cast<size_t>(size));
            unpack(exchange, packed, size, to, group.comm);
        });
    }
}

// Of external32 every byte is known.
void test_external(Trial &trial, const TypePair &types) {
    for (int units : unit_counts(trial, types, large_if_ints(types))) {
        const int count = units * types.send_unit;
        Exchange exchange(trial, text("count %d", count));
        const LayoutPtr bytes = make_byte();
        const Items from = exchange.source(*types.send, count);
        const Bytes external = to_external(*types.send, from.pack(0, count));
        const Items packed = exchange.destination(*bytes, static_cast<int>(external.size()));
        packed.expect(0, external);
        const Items to = exchange.destination(*types.receive, units * types.receive_unit);
        to.expect(0, from.pack(0, count));
        exchange.run([&] {
            MPI_Aint position = 0;
            exchange.require(MPI_Pack_external(kExternal, from.address(), count, from.type(),
                                               packed.address(), packed.count(), &position),
                             "MPI_Pack_external");
            if (position != static_cast<MPI_Aint>(external.size())) {
                exchange.fail(text("packed %td B, not %zu", position, external.size()));
            }
            position = 0;
            exchange.require(MPI_Unpack_external(kExternal, packed.address(), packed.count(),
                                                 &position, to.address(), to.count(), to.type()),
                             "MPI_Unpack_external");
        });
    }
}

// Ints at growing distances. Datatypes of even and odd rounds differ in one place, in the middle.
constexpr int kScattered = 32;
constexpr int kRounds = 8;
using Places = std::array<int, kScattered>;

Places places_of(int round) {
    Places places{};
    for (int i = 0; i < kScattered; ++i) {
        places.at(static_cast<size_t>(i)) = i * (i + 3) / 2;
    }
    places[kScattered / 2] += round % 2;
    return places;
}

MPI_Datatype make_type(const Places &places) {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_create_indexed_block(kScattered, 1, places.data(), MPI_INT, &type);
    return type;
}

// Each datatype has the address of the one before, which is freed.
void test_types_in_turn(Trial &trial) {
    const MPI_Comm comm = trial.group().comm;
    constexpr int kItems = kScattered * kScattered;
    for (int round = 0; round < kRounds; ++round) {
        Exchange exchange(trial, text("datatype %d", round));
        const Places places = places_of(round);
        const LayoutPtr ints = make_int();
        const Items from = exchange.source(*ints, kItems);
        const Items packed = exchange.destination(*ints, kScattered);
        const Items to = exchange.destination(*ints, kItems);
        int i = 0;
        for (const int place : places) {
            packed.expect(i++, from.pack(place, 1));
            to.expect(place, from.pack(place, 1));
        }
        exchange.run([&] {
            MPI_Datatype type = make_type(places);
            MPI_Type_commit(&type);
            const int bytes = static_cast<int>(kScattered * sizeof(int));
            int position = 0;
            exchange.require(
                MPI_Pack(from.address(), 1, type, packed.address(), bytes, &position, comm),
                "MPI_Pack");
            position = 0;
            exchange.require(
                MPI_Unpack(packed.address(), bytes, &position, to.address(), 1, type, comm),
                "MPI_Unpack");
            MPI_Type_free(&type);
        });
    }
}

// Open MPI 4.1 to 6.0 takes three elements of the first datatype for three ints without gaps,
// because a member has no size. It describes the second one in the same way, and has other flags
// for it.
void test_types_of_equal_descriptions(Trial &trial) {
    constexpr int kElements = 3;
    constexpr int kPitch = 3;  // ints
    constexpr MPI_Aint kExtent = kPitch * MPI_Aint{sizeof(int)};
    Exchange exchange(trial, "");
    const LayoutPtr ints = make_int();
    const Items from = exchange.source(*ints, kElements * kPitch);
    const Items packed = exchange.destination(*ints, kElements);
    for (int i = 0; i < kElements; ++i) {
        packed.expect(i, from.pack(i * kPitch, 1));
    }
    exchange.run([&] {
        MPI_Datatype nothing = MPI_DATATYPE_NULL;
        MPI_Type_contiguous(0, MPI_LONG, &nothing);
        const int lengths[] = {1, 2};
        const MPI_Aint places[] = {0, kExtent};
        const MPI_Datatype members[] = {MPI_INT, nothing};
        MPI_Datatype first = MPI_DATATYPE_NULL;
        MPI_Type_create_struct(2, lengths, places, members, &first);
        MPI_Datatype one = MPI_DATATYPE_NULL;
        MPI_Type_contiguous(1, MPI_INT, &one);
        MPI_Datatype second = MPI_DATATYPE_NULL;
        MPI_Type_create_resized(one, 0, kExtent, &second);
        for (MPI_Datatype type : {first, second}) {
            MPI_Type_commit(&type);
            int position = 0;
            const int bytes = kElements * static_cast<int>(sizeof(int));
            exchange.require(MPI_Pack(from.address(), kElements, type, packed.address(), bytes,
                                      &position, trial.group().comm),
                             "MPI_Pack");
        }
        for (MPI_Datatype type : {first, second, one, nothing}) {
            MPI_Type_free(&type);
        }
    });
}

void test_messages_of_types_in_turn(Trial &trial) {
    constexpr int kTag = 3;
    for (int round = 0; round < kRounds; ++round) {
        const Places places = places_of(round);
        std::vector<Piece> pieces;
        for (const int place : places) {
            pieces.push_back({make_int(), place * static_cast<ptrdiff_t>(sizeof(int)), 1});
        }
        Exchange exchange(trial, text("datatype %d", round));
        const LayoutPtr layout = derive("scattered", make_type(places), pieces);
        const Items from = exchange.source(*layout, 1);
        const Items to = exchange.destination(*layout, 1);
        to.expect(0, exchange.sent(trial.left(), *layout, 1));
        exchange.run([&] {
            exchange.require(MPI_Sendrecv(from.address(), 1, layout->type(), trial.right(), kTag,
                                          to.address(), 1, layout->type(), trial.left(), kTag,
                                          trial.group().comm, MPI_STATUS_IGNORE),
                             "MPI_Sendrecv");
        });
    }
}

}  // namespace

void add_packing(Registry &registry) {
    for (const TypePair &types : all_types()) {
        registry.add("Pack/Unpack, " + types.name,
                     [types](Trial &trial) { test_there_and_back(trial, types, Role::source); });
    }
    for (const TypePair &types : few_types()) {
        registry.add("Pack/Unpack by a receive buffer, " + types.name, [types](Trial &trial) {
            test_there_and_back(trial, types, Role::destination);
        });
        registry.add("Pack and send, " + types.name,
                     [types](Trial &trial) { test_packed_send(trial, types); });
        registry.add("Receive and Unpack, " + types.name,
                     [types](Trial &trial) { test_packed_receive(trial, types); });
    }
    registry.add("Pack/Unpack, types that are freed in turn", test_types_in_turn);
    registry.add("Pack, types of equal descriptions", test_types_of_equal_descriptions);
    registry.add("Sendrecv, types that are freed in turn", test_messages_of_types_in_turn);
    for (const TypePair &types : portable_types()) {
        registry.add("Pack_external/Unpack_external, " + types.name,
                     [types](Trial &trial) { test_external(trial, types); });
    }
}

}  // namespace gpushm::mpi_test::operations
