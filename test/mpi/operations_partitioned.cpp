// SPDX-License-Identifier: BSD-3-Clause
// Partitioned messages around a ring (MPI 4).
#include "operations_mpi_version.hpp"
#include "operations_registry.hpp"
#include "operations_types.hpp"

namespace gpushm::mpi_test::operations {

#if GPUSHM_TEST_MPI4

namespace {

constexpr int kTag = 10;
constexpr int kPartitions = 6;

// The message has the same length on both sides, but may have other partitions.
struct Partitions {
    int of_sender;
    int of_receiver;
};

using MakeReady = void (*)(Exchange &, MPI_Request);

void one_by_one(Exchange &exchange, MPI_Request request) {
    for (int partition = kPartitions; partition-- > 0;) {
        exchange.require(MPI_Pready(partition, request), "MPI_Pready");
    }
}

void by_range_and_list(Exchange &exchange, MPI_Request request) {
    int list[] = {1, 0, 2};  // not const in Open MPI 5.0
    exchange.require(MPI_Pready_range(3, kPartitions - 1, request), "MPI_Pready_range");
    exchange.require(MPI_Pready_list(3, list, request), "MPI_Pready_list");
}

void wait_for_partitions(Exchange &exchange, MPI_Request request, int partitions) {
    for (int partition = 0; partition < partitions; ++partition) {
        for (int arrived = 0; arrived == 0;) {
            if (!exchange.require(MPI_Parrived(request, partition, &arrived), "MPI_Parrived")) {
                return;
            }
        }
    }
}

void test_partitioned(Trial &trial, const TypePair &types, Partitions partitions, MakeReady ready) {
    const Group &group = trial.group();
    for (int units : {1, 40, 5000}) {
        const int total = units * kPartitions;
        Exchange exchange(trial, text("count %d in %d and %d partitions", total,
                                      partitions.of_sender, partitions.of_receiver));
        const Items out = exchange.source(*types.send, total);
        const Items in = exchange.destination(*types.receive, total);
        in.expect(0, exchange.sent(trial.left(), *types.send, total));
        MPI_Request send = MPI_REQUEST_NULL;
        MPI_Request receive = MPI_REQUEST_NULL;
        exchange.require(
            MPI_Psend_init(out.address(), partitions.of_sender, total / partitions.of_sender,
                           out.type(), trial.right(), kTag, group.comm, MPI_INFO_NULL, &send),
            "MPI_Psend_init");
        exchange.require(
            MPI_Precv_init(in.address(), partitions.of_receiver, total / partitions.of_receiver,
                           in.type(), trial.left(), kTag, group.comm, MPI_INFO_NULL, &receive),
            "MPI_Precv_init");
        for (int start = 0; start < 2; ++start) {
            exchange.run([&] {
                exchange.require(MPI_Start(&receive), "MPI_Start");
                exchange.require(MPI_Start(&send), "MPI_Start");
                ready(exchange, send);
                wait_for_partitions(exchange, receive, partitions.of_receiver);
                exchange.wait(receive);
                exchange.wait(send);
            });
        }
        MPI_Request_free(&send);
        MPI_Request_free(&receive);
    }
}

}  // namespace

// Open MPI (up to 6.0) places the partitions of types with gaps wrongly, in host memory too.
void add_partitioned(Registry &registry) {
    for (const TypePair &types : {same_type(make_int()), same_type(make_contiguous())}) {
        registry.add("Psend_init/Precv_init, Pready, " + types.name, [types](Trial &trial) {
            test_partitioned(trial, types, {kPartitions, kPartitions}, one_by_one);
        });
        registry.add(
            "Psend_init/Precv_init, Pready_range and _list, " + types.name, [types](Trial &trial) {
                test_partitioned(trial, types, {kPartitions, kPartitions}, by_range_and_list);
            });
        registry.add("Psend_init/Precv_init, other partitions, " + types.name,
                     [types](Trial &trial) {
                         test_partitioned(trial, types, {kPartitions, 2}, one_by_one);
                     });
    }
}

#else

void add_partitioned(Registry &) {}

#endif

}  // namespace gpushm::mpi_test::operations
