// SPDX-License-Identifier: BSD-3-Clause
// Windows over the processes of two worlds: every process puts to each, and each counts whom it has
// heard.
#include "watchdog.hpp"
#include "late_windows_memory.hpp"

#include <mpi.h>

namespace gpushm::mpi_test::late_windows {
namespace {

constexpr int kChildren = 2;
constexpr int kSpawns = 2;
constexpr int kWindows = 2;

// Until it is disconnected.
MPI_Comm parents() {
    MPI_Comm parent;
    MPI_Comm_get_parent(&parent);
    return parent;
}

struct Place {
    MPI_Win window;
    std::vector<MPI_Aint> bases;  // by rank
};

Place make_window(MPI_Comm comm, bool is_dynamic, const Memory &memory) {
    int size = 0;
    MPI_Comm_size(comm, &size);
    const auto bytes = static_cast<MPI_Aint>(memory.bytes());
    Place place{MPI_WIN_NULL, std::vector<MPI_Aint>(size)};
    if (is_dynamic) {
        MPI_Aint own = 0;
        MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &place.window);
        MPI_Win_attach(place.window, memory.address(), bytes);
        MPI_Get_address(memory.address(), &own);
        MPI_Allgather(&own, 1, MPI_AINT, place.bases.data(), 1, MPI_AINT, comm);
    } else {
        MPI_Win_create(memory.address(), bytes, 1, MPI_INFO_NULL, comm, &place.window);
    }
    return place;
}

Value greeting(int rank, int pass) {
    return 1000 * (pass + 1) + rank;
}

// The memory: a value from each rank, and behind them their number.
void greet_all(MPI_Comm comm, bool is_dynamic, CudaDriver &driver, const Kinds &kinds, int pass,
               Findings &findings) {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    const MemoryKind kind = kinds[(rank + pass) % kinds.size()];
    Memory memory(driver, kind, size + 1, 0);
    const Memory own(driver, kind, 1, greeting(rank, pass));
    const Place place = make_window(comm, is_dynamic, memory);
    MPI_Win window = place.window;
    MPI_Win_fence(0, window);
    for (int target = 0; target < size; ++target) {
        const MPI_Aint base = place.bases[target];
        const auto slot = [&](int index) {
            return base + index * static_cast<MPI_Aint>(sizeof(Value));
        };
        const Value one = 1;
        Value count = 0;
        MPI_Put(own.address(), 1, MPI_INT64_T, target, slot(rank), 1, MPI_INT64_T, window);
        MPI_Fetch_and_op(&one, &count, MPI_INT64_T, target, slot(size), MPI_SUM, window);
        MPI_Win_fence(0, window);
    }
    std::vector<Value> wanted;
    for (int from = 0; from < size; ++from) {
        wanted.push_back(greeting(from, pass));
    }
    wanted.push_back(size);
    findings.expect(
        "process " + std::to_string(rank) + (is_dynamic ? ", dynamic window" : ", window"),
        memory.read(), wanted);
    MPI_Win_free(&window);
}

}  // namespace

bool is_child() {
    static const bool child = parents() != MPI_COMM_NULL;
    return child;
}

void test_worlds(CudaDriver &driver, const Kinds &kinds, char **argv, Findings &findings) {
    for (int spawn = 0; spawn < (is_child() ? 1 : kSpawns); ++spawn) {
        note("spawn %d", spawn);
        MPI_Comm both = parents();
        MPI_Comm all = MPI_COMM_NULL;
        if (!is_child()) {
            MPI_Comm_spawn(argv[0], argv + 1, kChildren, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &both,
                           MPI_ERRCODES_IGNORE);
        }
        MPI_Intercomm_merge(both, is_child() ? 1 : 0, &all);
        for (int pass = 0; pass < kWindows; ++pass) {
            greet_all(all, false, driver, kinds, pass, findings);
            greet_all(all, true, driver, kinds, pass, findings);
        }
        int errors = findings.count();
        MPI_Allreduce(MPI_IN_PLACE, &errors, 1, MPI_INT, MPI_SUM, all);
        findings.expect(errors == 0 || findings.count() > 0, "another process has errors");
        MPI_Comm_free(&all);
        MPI_Comm_disconnect(&both);
    }
}

}  // namespace gpushm::mpi_test::late_windows
