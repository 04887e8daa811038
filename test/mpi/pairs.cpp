// SPDX-License-Identifier: BSD-3-Clause
// Two MPI ranks send messages between host, pinned, device and managed memory in all pairs and
// check every byte. Runs with any MPI library, and with the real CUDA driver, a simulated one or
// none.
#include "exchange.hpp"
#include "latency.hpp"
#include "options.hpp"
#include "watchdog.hpp"

#include <mpi.h>

#include <cstdio>
#include <exception>
#include <string>

namespace gpushm::mpi_test {
namespace {

long sum_over_ranks(long value) {
    long sum = 0;
    MPI_Allreduce(&value, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

// Prints the line of one test. Returns whether it passed on both ranks.
bool report(const Session &session, const std::string &name, const Outcome &outcome) {
    if (outcome.failed_messages != 0) {
        std::fprintf(stderr, "pairs: rank %d, %s: %s\n", session.rank, name.c_str(),
                     outcome.first_failure.c_str());
    }
    const long checked = sum_over_ranks(outcome.checked_messages);
    const long failed = sum_over_ranks(outcome.failed_messages);
    if (session.rank == 0) {
        std::printf("%s  %-20s  %ld messages", failed == 0 ? "PASS" : "FAIL", name.c_str(),
                    checked);
        std::printf(failed == 0 ? "\n" : ", %ld wrong\n", failed);
        std::fflush(stdout);
    }
    return failed == 0;
}

Outcome test_pair(Session &session, const KindPair &pair) {
    Outcome sum = test_single_messages(session, pair);
    const Outcome windows = test_windows(session, pair);
    sum.checked_messages += windows.checked_messages;
    sum.failed_messages += windows.failed_messages;
    if (sum.first_failure.empty()) {
        sum.first_failure = windows.first_failure;
    }
    return sum;
}

std::vector<MemoryKind> chosen_kinds(const Options &options, const CudaDriver *driver) {
    if (!options.kinds.empty()) {
        return options.kinds;
    }
    if (driver == nullptr) {
        return {MemoryKind::host};
    }
    if (options.quick) {
        return {MemoryKind::host, MemoryKind::device, MemoryKind::managed};
    }
    return {MemoryKind::host, MemoryKind::pinned, MemoryKind::device, MemoryKind::managed};
}

void choose_device(CudaDriver &driver, const Options &options, int rank) {
    const int device =
        options.devices.empty() ? rank % driver.device_count() : options.devices[rank];
    driver.use_device(device);
    std::printf("rank %d: device %d\n", rank, device);
    std::fflush(stdout);
}

int count_failures(Session &session, const std::vector<KindPair> &pairs,
                   const std::vector<MemoryKind> &kinds) {
    int failures = 0;
    for (const KindPair &pair : pairs) {
        failures += !report(session, to_string(pair), test_pair(session, pair));
    }
    failures += !report(session, "order, mixed kinds", test_order(session, kinds));
    return failures;
}

int run(const Options &options) {
    Session session{};
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &session.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2) {
        std::fprintf(stderr, "pairs: started with %d rank(s), needs 2: mpirun -n 2 pairs\n", size);
        return 2;
    }
    start_watchdog(session.rank, options.timeout_s);

    std::string reason;
    const std::unique_ptr<CudaDriver> driver = CudaDriver::open(&reason);
    if (session.rank == 0) {
        std::printf("%s\n", driver ? driver->description().c_str()
                                   : ("no CUDA driver, host memory only: " + reason).c_str());
        std::fflush(stdout);
    }
    if (driver) {
        choose_device(*driver, options, session.rank);
    }

    session.driver = driver.get();
    session.max_size = options.max_size;
    session.quick = options.quick;
    const std::vector<MemoryKind> kinds = chosen_kinds(options, driver.get());
    std::vector<KindPair> pairs;
    for (MemoryKind from : kinds) {
        for (MemoryKind to : kinds) {
            pairs.push_back({from, to});
        }
    }
    const int failures = options.tests ? count_failures(session, pairs, kinds) : 0;
    if (options.table) {
        print_latency_table(session, pairs, options.repeat);
    }
    if (session.rank == 0 && options.tests) {
        const int tests = static_cast<int>(pairs.size()) + 1;
        std::printf("%d passed, %d failed\n", tests - failures, failures);
    }
    stop_watchdog();
    return failures == 0 ? 0 : 1;
}

int print_driver() {
    std::string reason;
    const std::unique_ptr<CudaDriver> driver = CudaDriver::open(&reason);
    std::printf("%s\n", driver ? driver->description().c_str() : reason.c_str());
    return driver ? 0 : 1;
}

}  // namespace
}  // namespace gpushm::mpi_test

int main(int argc, char **argv) {
    using namespace gpushm::mpi_test;
    Options options;
    try {
        options = parse_options(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "pairs: %s\n", error.what());
        return 2;
    }
    if (options.help) {
        std::fputs(kUsage, stdout);
        return 0;
    }
    if (options.only_driver) {
        return print_driver();
    }
    MPI_Init(&argc, &argv);
    int status = 2;
    try {
        status = run(options);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "pairs: %s\n", error.what());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Finalize();
    return status;
}
