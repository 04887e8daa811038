// SPDX-License-Identifier: BSD-3-Clause
// MPI_Allreduce of two ranks, which gpushm runs once both have agreed: in several calls of each
// size, so that they do.
#include "operations_registry.hpp"
#include "operations_types.hpp"
#include "operations_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace gpushm::mpi_test::operations {
namespace {

constexpr int kSmallest = (32 << 10) / sizeof(int);     // ints that gpushm reduces
constexpr int kHalves = (32 << 20) / sizeof(int) + 77;  // ints of which each rank reduces a half

bool both_on_gpu(const Trial &trial) {
    return trial.kind(Role::source) == MemoryKind::device &&
           trial.kind(Role::destination) == MemoryKind::device;
}

void sum_up(Trial &trial, int count, bool in_place, const char *what) {
    const Reduction sum = sum_of_ints();
    const Group &group = trial.group();
    Exchange exchange(trial, text("%s, count %d", what, count));
    const Bytes own = sum.values(group.rank, count);
    const Items send = exchange.blank(Role::source, *sum.layout, count);
    const Items receive = exchange.destination(*sum.layout, count);
    if (in_place) {
        receive.fill(0, own);
        receive.change(0, reduce(sum, group.size, count));
    } else {
        send.fill(0, own);
        receive.expect(0, reduce(sum, group.size, count));
    }
    exchange.run([&] {
        exchange.require(MPI_Allreduce(in_place ? MPI_IN_PLACE : send.address(), receive.address(),
                                       count, sum.layout->type(), sum.op, group.comm),
                         "MPI_Allreduce");
    });
}

// Each rank is in place in other rounds than its peer.
void test_rounds(Trial &trial) {
    constexpr int kRounds = 6;
    for (int round = 0; round < kRounds; ++round) {
        for (const int count : {kSmallest - 1, kSmallest, kSmallest * 3 + 1}) {
            sum_up(trial, count, (round + trial.group().rank) % 3 == 0, "round");
        }
    }
}

// With the copies that this takes in host memory, once a case is enough.
void test_halves(Trial &trial) {
    constexpr int kRounds = 4;
    for (int round = 0; round < kRounds && both_on_gpu(trial); ++round) {
        sum_up(trial, kHalves, round == kRounds - 1, "halves");
    }
}

// A communicator that is made from another one, or takes the place of one that was freed, knows
// nothing of the agreement.
void test_other_communicators(Trial &trial) {
    const Reduction sum = sum_of_ints();
    const Group &group = trial.group();
    Exchange exchange(trial, "of 12 communicators");
    const Items send = exchange.blank(Role::source, *sum.layout, kSmallest);
    const Items receive = exchange.destination(*sum.layout, kSmallest);
    send.fill(0, sum.values(group.rank, kSmallest));
    receive.expect(0, reduce(sum, group.size, kSmallest));
    exchange.run([&] {
        for (int made = 0; made < 12; ++made) {
            MPI_Comm comm = MPI_COMM_NULL;
            MPI_Comm_dup(group.comm, &comm);
            for (int call = 0; call < made % 5; ++call) {
                exchange.require(MPI_Allreduce(send.address(), receive.address(), kSmallest,
                                               sum.layout->type(), sum.op, comm),
                                 "MPI_Allreduce");
            }
            MPI_Comm_free(&comm);
        }
        exchange.require(MPI_Allreduce(send.address(), receive.address(), kSmallest,
                                       sum.layout->type(), sum.op, group.comm),
                         "MPI_Allreduce");
    });
}

// Both ranks get the same bits, although the order of the operands decides about the sign of a zero
// and which side a NaN is taken from: wherever each rank's numbers are in each call, and though one
// of them begins at an address that a GPU does not reduce at.
void test_same_bits(Trial &trial) {
    constexpr int kFloats = 16387;
    constexpr ptrdiff_t kOdd = 2;
    const Group &group = trial.group();
    const LayoutPtr type = basic("float", MPI_FLOAT, sizeof(float));
    const float own[] = {group.rank == 0 ? 0.0F : -0.0F, group.rank == 0 ? NAN : 1.0F,
                         group.rank == 0 ? 1.0F : NAN};
    Bytes values(kFloats * sizeof(float));
    for (size_t i = 0; i < kFloats; ++i) {
        memcpy(&values[i * sizeof(float)], &own[i % 3], sizeof(float));
    }
    for (int call = 0; call < 8; ++call) {
        Exchange exchange(trial, text("call %d", call));
        const bool is_on_host = call / 2 == 1 + group.rank;
        const bool is_odd = call == 6 && group.rank == 1;
        const Items send = is_on_host ? exchange.on_host(*type, kFloats + 1)
                                      : exchange.blank(Role::source, *type, kFloats + 1);
        const Items receive = exchange.destination(*type, kFloats);
        const Items result = exchange.on_host(*type, kFloats);
        send.ignore((kFloats + 1) * sizeof(float));
        receive.ignore(kFloats * sizeof(float));
        result.ignore(kFloats * sizeof(float));
        send.fill(0, values);
        const void *const from = static_cast<char *>(send.address()) + (is_odd ? kOdd : 0);
        Bytes all(2 * values.size());
        exchange.run([&] {
            exchange.require(
                MPI_Allreduce(from, receive.address(), kFloats, MPI_FLOAT, MPI_MAX, group.comm),
                "MPI_Allreduce");
            MPI_Sendrecv(receive.address(), kFloats, MPI_FLOAT, group.rank, 0, result.address(),
                         kFloats, MPI_FLOAT, group.rank, 0, group.comm, MPI_STATUS_IGNORE);
            MPI_Allgather(result.address(), kFloats, MPI_FLOAT, all.data(), kFloats, MPI_FLOAT,
                          group.comm);
        });
        const auto middle = all.begin() + static_cast<ptrdiff_t>(values.size());
        if (!std::equal(all.begin(), middle, middle)) {
            trial.fail(text("call %d: the ranks have different results", call));
        }
    }
}

}  // namespace

void add_pairs(Registry &registry) {
    if (registry.world().size != 2) {
        return;
    }
    registry.add("Allreduce of a pair, rounds", test_rounds);
    registry.add("Allreduce of a pair, halves", test_halves);
    registry.add("Allreduce of a pair, other communicators", test_other_communicators);
    registry.add("Allreduce of a pair, same bits", test_same_bits);
}

}  // namespace gpushm::mpi_test::operations
