// SPDX-License-Identifier: BSD-3-Clause
// Each rank sends from one buffer and receives into another one, so that both ways of the ping-pong
// go from the first kind to the second one, as with `ucx_perftest -m FROM,TO`.
#include "latency.hpp"

#include "guarded_buffer.hpp"
#include "watchdog.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstdio>

namespace gpushm::mpi_test {
namespace {

constexpr int kTag = 3;

struct Column {
    const char *title;
    size_t size;
    int iterations;
};

constexpr Column kColumns[] = {
    {"8 B", 8, 200},
    {"64 KB", size_t{64} << 10, 100},
    {"4 MB", size_t{4} << 20, 20},
};

}  // namespace

double measure_latency(const Session &session, const KindPair &pair, size_t size, int iterations) {
    GuardedBuffer source(session.driver, pair.from, size);
    GuardedBuffer destination(session.driver, pair.to, size);
    const Message message{size, 0, size, 0};
    source.prepare_source(message);
    destination.prepare_destination(message);

    const int peer = 1 - session.rank;
    const int count = static_cast<int>(size);
    void *from = source.address(message);
    void *to = destination.address(message);
    auto send = [&] { MPI_Send(from, count, MPI_BYTE, peer, kTag, MPI_COMM_WORLD); };
    auto receive = [&] {
        MPI_Recv(to, count, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    };

    const int warmup = iterations / 10 + 2;
    std::vector<double> round_trips;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < warmup + iterations; ++i) {
        const double start = MPI_Wtime();
        if (session.rank == 0) {
            send();
            receive();
        } else {
            receive();
            send();
        }
        if (i >= warmup) {
            round_trips.push_back(MPI_Wtime() - start);
        }
    }
    const auto middle = round_trips.begin() + round_trips.size() / 2;
    std::nth_element(round_trips.begin(), middle, round_trips.end());
    return *middle / 2 * 1e6;
}

void print_latency_table(const Session &session, const std::vector<KindPair> &pairs, int repeat) {
    if (session.rank == 0) {
        std::printf("\n%-22s", "one-way median, us");
        for (const Column &column : kColumns) {
            std::printf("%12s", column.title);
        }
        std::printf("\n");
    }
    for (const KindPair &pair : pairs) {
        if (session.rank == 0) {
            std::printf("%-22s", to_string(pair).c_str());
        }
        for (const Column &column : kColumns) {
            note("latency of %s, %s", to_string(pair).c_str(), column.title);
            const double latency =
                measure_latency(session, pair, column.size, column.iterations * repeat);
            if (session.rank == 0) {
                std::printf("%12.2f", latency);
                std::fflush(stdout);
            }
        }
        if (session.rank == 0) {
            std::printf("\n");
        }
    }
}

}  // namespace gpushm::mpi_test
