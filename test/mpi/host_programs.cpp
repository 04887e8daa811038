// SPDX-License-Identifier: BSD-3-Clause
// host_programs NAME...: programs on host memory that know nothing of GPUs (host_programs.hpp). Run
// plainly and with gpushm they are to print the same (contrib/ci/host_programs.sh). The programs
// create, allocate, shared and dynamic take a kind of memory, too: create@device.
#include "host_programs.hpp"

#include "watchdog.hpp"

#include <cstdio>
#include <cstring>

namespace gpushm::mpi_test {

void report(MPI_Comm comm, const std::string &name, bool is_right) {
    int rank;
    int all = is_right ? 1 : 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, comm);
    if (rank == 0) {
        printf("%s: %s\n", name.c_str(), all != 0 ? "right" : "wrong");
        fflush(stdout);
    }
    note("after %s", name.c_str());
}

namespace {

MemoryKind kind_after(size_t at, const std::string &name) {
    if (at == std::string::npos) {
        return MemoryKind::host;
    }
    for (MemoryKind kind : {MemoryKind::pinned, MemoryKind::device, MemoryKind::managed}) {
        if (name.substr(at + 1) == to_string(kind)) {
            return kind;
        }
    }
    return MemoryKind::host;
}

bool run(const char *program, const std::string &name) {
    const size_t at = name.find('@');
    const std::string how = name.substr(0, at);
    if (name == "waiting") {
        run_waiting();
    } else if (name == "regions") {
        run_regions();
    } else if (name == "matched") {
        run_matched();
    } else if (name == "sums") {
        run_sums();
    } else if (name == "revoked") {
        run_revoked();
    } else if (name == "spawn") {
        run_spawn(program);
    } else if (name == "connect") {
        run_connect();
    } else if (name == "threads") {
        run_threads();
    } else if (name == "files") {
        run_files();
    } else if (how == "create" || how == "allocate" || how == "shared" || how == "dynamic") {
        run_windows(how, kind_after(at, name));
    } else {
        fprintf(stderr, "host_programs: %s: no such program\n", name.c_str());
        return false;
    }
    return true;
}

int run_all(int argc, char **argv) {
    int provided;
    int rank;
    // With threads Open MPI 4.1 has no component for windows of several worlds.
    const bool has_threads = argc > 1 && strcmp(argv[1], "threads") == 0;
    MPI_Init_thread(&argc, &argv, has_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    start_watchdog(rank, 60);
    bool known = true;
    for (int i = 1; i < argc && known; i++) {
        note("begin %s", argv[i]);
        known = run(argv[0], argv[i]);
    }
    stop_watchdog();
    MPI_Finalize();
    return known ? 0 : 2;
}

}  // namespace
}  // namespace gpushm::mpi_test

int main(int argc, char **argv) {
    using namespace gpushm::mpi_test;
    if (argc > 1 && strcmp(argv[1], "session") == 0) {
        run_session();
        return 0;
    }
    return run_all(argc, argv);
}
