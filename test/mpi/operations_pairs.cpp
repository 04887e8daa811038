// SPDX-License-Identifier: BSD-3-Clause
// MPI_Allreduce of two ranks, which gpushm runs once both have agreed: in several calls of each
// size, so that they do.
#include "operations_registry.hpp"
#include "operations_types.hpp"
#include "operations_values.hpp"

#include <cmath>
#include <vector>

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

// Both ranks get the same zero, although -0 and +0 are equal.
void test_signed_zeros(Trial &trial) {
    constexpr int kDoubles = 8192;
    const Group &group = trial.group();
    const LayoutPtr type = basic("double", MPI_DOUBLE, sizeof(double));
    const auto bytes_of = [](double value) {
        const std::vector<double> values(kDoubles, value);
        const auto *begin = reinterpret_cast<const unsigned char *>(values.data());
        return Bytes(begin, begin + kDoubles * sizeof(double));
    };
    double zeros[2] = {1, 1};
    for (const char *what : {"first", "second", "third", "fourth"}) {
        Exchange exchange(trial, what);
        const Items send = exchange.blank(Role::source, *type, kDoubles);
        const Items receive = exchange.destination(*type, kDoubles);
        const Items result = exchange.on_host(*type, 1);
        send.fill(0, bytes_of(group.rank == 0 ? 0.0 : -0.0));
        receive.ignore(kDoubles * sizeof(double));
        result.ignore(sizeof(double));
        exchange.run([&] {
            exchange.require(MPI_Allreduce(send.address(), receive.address(), kDoubles, MPI_DOUBLE,
                                           MPI_MAX, group.comm),
                             "MPI_Allreduce");
            MPI_Sendrecv(receive.address(), 1, MPI_DOUBLE, group.rank, 0, result.address(), 1,
                         MPI_DOUBLE, group.rank, 0, group.comm, MPI_STATUS_IGNORE);
            MPI_Allgather(result.address(), 1, MPI_DOUBLE, zeros, 1, MPI_DOUBLE, group.comm);
        });
        if (zeros[0] != 0 || std::signbit(zeros[0]) != std::signbit(zeros[1])) {
            trial.fail(text("%s: %g and %g", what, zeros[0], zeros[1]));
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
    registry.add("Allreduce of a pair, signed zeros", test_signed_zeros);
}

}  // namespace gpushm::mpi_test::operations
