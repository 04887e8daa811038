// SPDX-License-Identifier: BSD-3-Clause
// Host programs that wait by one-sided calls, attach regions, start processes, connect, use
// threads, files and sessions.
#include "host_programs.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

namespace gpushm::mpi_test {
namespace {

int rank_in(MPI_Comm comm) {
    int rank;
    MPI_Comm_rank(comm, &rank);
    return rank;
}

int size_of(MPI_Comm comm) {
    int size;
    MPI_Comm_size(comm, &size);
    return size;
}

std::vector<int> counted(int count, int first) {
    std::vector<int> values(static_cast<size_t>(count));
    std::iota(values.begin(), values.end(), first);
    return values;
}

// Ranks other than 0 increment a counter of rank 0, which looks at it by `look` until all have.
template <typename Look>
bool sees_increments(Look look) {
    int *counter;
    MPI_Win window;
    const int one = 1;
    int before;
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &counter, &window);
    MPI_Win_lock_all(0, window);
    *counter = 0;
    MPI_Win_sync(window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_in(MPI_COMM_WORLD) == 0) {
        while (look(window, counter) != size_of(MPI_COMM_WORLD) - 1) {
        }
    } else {
        MPI_Fetch_and_op(&one, &before, MPI_INT, 0, 0, MPI_SUM, window);
        MPI_Win_flush(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    return true;
}

int look_by_sync(MPI_Win window, const int *counter) {
    MPI_Win_sync(window);
    return *const_cast<const volatile int *>(counter);
}

int look_by_get(MPI_Win window, const int *) {
    int found = 0;
    MPI_Get(&found, 1, MPI_INT, 0, 0, 1, MPI_INT, window);
    MPI_Win_flush(0, window);
    return found;
}

int look_by_fetch(MPI_Win window, const int *) {
    int found = 0;
    MPI_Fetch_and_op(nullptr, &found, MPI_INT, 0, 0, MPI_NO_OP, window);
    MPI_Win_flush(0, window);
    return found;
}

int look_by_accumulate(MPI_Win window, const int *) {
    int found = 0;
    MPI_Get_accumulate(nullptr, 0, MPI_INT, &found, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_NO_OP,
                       window);
    MPI_Win_flush(0, window);
    return found;
}

// Each rank takes a ticket of rank 0, waits until it is served and adds to a number that the lock
// protects.
bool tickets_are_served_in_turn() {
    constexpr int kTurns = 20;
    enum { next_ticket, served, protected_number, numbers };
    int *memory;
    MPI_Win window;
    const int one = 1;
    MPI_Win_allocate(numbers * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
                     &window);
    MPI_Win_lock_all(0, window);
    memory[next_ticket] = memory[served] = memory[protected_number] = 0;
    MPI_Win_sync(window);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int turn = 0; turn < kTurns; turn++) {
        int ticket;
        int now;
        int number;
        MPI_Fetch_and_op(&one, &ticket, MPI_INT, 0, next_ticket, MPI_SUM, window);
        MPI_Win_flush(0, window);
        do {
            MPI_Fetch_and_op(nullptr, &now, MPI_INT, 0, served, MPI_NO_OP, window);
            MPI_Win_flush(0, window);
        } while (now != ticket);
        MPI_Get(&number, 1, MPI_INT, 0, protected_number, 1, MPI_INT, window);
        MPI_Win_flush(0, window);
        number++;
        MPI_Put(&number, 1, MPI_INT, 0, protected_number, 1, MPI_INT, window);
        MPI_Win_flush(0, window);
        MPI_Accumulate(&one, 1, MPI_INT, 0, served, 1, MPI_INT, MPI_SUM, window);
        MPI_Win_flush(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int total;
    MPI_Get(&total, 1, MPI_INT, 0, protected_number, 1, MPI_INT, window);
    MPI_Win_flush(0, window);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    return total == kTurns * size_of(MPI_COMM_WORLD);
}

// Every process puts its number into every other one's window.
bool all_put_to_all(MPI_Comm comm) {
    const int rank = rank_in(comm);
    const int size = size_of(comm);
    std::vector<int> target(static_cast<size_t>(size), -1);
    MPI_Win window;
    MPI_Win_create(target.data(), static_cast<MPI_Aint>(target.size() * sizeof(int)), sizeof(int),
                   MPI_INFO_NULL, comm, &window);
    MPI_Win_fence(0, window);
    for (int other = 0; other < size; other++) {
        MPI_Put(&rank, 1, MPI_INT, other, rank, 1, MPI_INT, window);
    }
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
    return target == counted(size, 0);
}

bool all_send_to_all(MPI_Comm comm) {
    const int rank = rank_in(comm);
    const int size = size_of(comm);
    bool is_right = true;
    for (int count : {1, 10000, 300000}) {
        for (int distance = 0; distance < size; distance++) {
            const int source = (rank + size - distance) % size;
            const std::vector<int> sent = counted(count, rank);
            std::vector<int> received(sent.size());
            MPI_Sendrecv(sent.data(), count, MPI_INT, (rank + distance) % size, count,
                         received.data(), count, MPI_INT, source, count, comm, MPI_STATUS_IGNORE);
            is_right = is_right && received == counted(count, source);
        }
    }
    return is_right;
}

void report_world(MPI_Comm comm, const std::string &name) {
    report(comm, name + ", messages", all_send_to_all(comm));
    report(comm, name + ", window", all_put_to_all(comm));
}

}  // namespace

void run_waiting() {
    report(MPI_COMM_WORLD, "waiting by MPI_Win_sync", sees_increments(look_by_sync));
    report(MPI_COMM_WORLD, "waiting by MPI_Get", sees_increments(look_by_get));
    report(MPI_COMM_WORLD, "waiting by MPI_Fetch_and_op", sees_increments(look_by_fetch));
    report(MPI_COMM_WORLD, "waiting by MPI_Get_accumulate", sees_increments(look_by_accumulate));
    report(MPI_COMM_WORLD, "tickets", tickets_are_served_in_turn());
}

void run_regions() {
    constexpr int kRegions = 20;
    const int rank = rank_in(MPI_COMM_WORLD);
    const int size = size_of(MPI_COMM_WORLD);
    const int next = (rank + 1) % size;
    MPI_Win window;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    for (int round = 0; round < 3; round++) {
        std::vector<std::vector<int>> regions(kRegions);
        std::vector<MPI_Aint> mine(kRegions);
        std::vector<MPI_Aint> others(static_cast<size_t>(kRegions * size));
        for (size_t i = 0; i < kRegions; i++) {
            regions[i].assign(2000, -1);
            MPI_Win_attach(window, regions[i].data(),
                           static_cast<MPI_Aint>(regions[i].size() * sizeof(int)));
            MPI_Get_address(regions[i].data(), &mine[i]);
        }
        MPI_Allgather(mine.data(), kRegions, MPI_AINT, others.data(), kRegions, MPI_AINT,
                      MPI_COMM_WORLD);
        std::vector<std::vector<int>> sent;
        MPI_Win_lock_all(0, window);
        for (int i = 0; i < kRegions; i++) {
            sent.push_back(counted(2000, 1000000 * rank + 1000 * i + round));
            MPI_Put(sent.back().data(), 2000, MPI_INT, next,
                    others[static_cast<size_t>(next * kRegions + i)], 2000, MPI_INT, window);
        }
        MPI_Win_unlock_all(window);
        MPI_Barrier(MPI_COMM_WORLD);
        bool is_right = true;
        for (size_t i = 0; i < kRegions; i++) {
            const int source = (rank + size - 1) % size;
            is_right =
                is_right &&
                regions[i] == counted(2000, 1000000 * source + 1000 * static_cast<int>(i) + round);
            MPI_Win_detach(window, regions[i].data());
        }
        report(MPI_COMM_WORLD, "regions, round " + std::to_string(round), is_right);
    }
    MPI_Win_free(&window);
}

void run_spawn(const char *program) {
    MPI_Comm parent;
    MPI_Comm children;
    MPI_Comm all;
    MPI_Comm_get_parent(&parent);
    const bool is_child = parent != MPI_COMM_NULL;
    if (is_child) {
        children = parent;
    } else {
        char name[] = "spawn";
        char *arguments[] = {name, nullptr};
        MPI_Comm_spawn(program, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                       MPI_ERRCODES_IGNORE);
    }
    MPI_Intercomm_merge(children, is_child ? 1 : 0, &all);
    report_world(all, "spawned");
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&children);
}

void run_connect() {
    const int rank = rank_in(MPI_COMM_WORLD);
    const bool accepts = rank < (size_of(MPI_COMM_WORLD) + 1) / 2;
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm half;
    MPI_Comm other;
    MPI_Comm all;
    MPI_Comm_split(MPI_COMM_WORLD, accepts ? 0 : 1, rank, &half);
    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
    }
    MPI_Bcast(port, sizeof(port), MPI_CHAR, 0, MPI_COMM_WORLD);
    if (accepts) {
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &other);
    } else {
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &other);
    }
    MPI_Intercomm_merge(other, accepts ? 0 : 1, &all);
    report_world(all, "connected");
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&other);
    MPI_Comm_free(&half);
}

void run_threads() {
    constexpr int kThreads = 4;
    int provided;
    MPI_Query_thread(&provided);
    if (provided != MPI_THREAD_MULTIPLE) {
        report(MPI_COMM_WORLD, "threads, not provided", true);
        return;
    }
    std::vector<MPI_Comm> comms(kThreads);
    std::vector<char> right(kThreads, 0);
    std::vector<std::thread> threads;
    for (MPI_Comm &comm : comms) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    }
    for (size_t i = 0; i < kThreads; i++) {
        threads.emplace_back([&, i] { right[i] = all_send_to_all(comms[i]) ? 1 : 0; });
    }
    for (size_t i = 0; i < kThreads; i++) {
        threads[i].join();
        report(comms[i], "thread " + std::to_string(i), right[i] != 0);
        MPI_Comm_free(&comms[i]);
    }
}

void run_files() {
    constexpr int kBlock = 5;
    constexpr int kBlocks = 1000;
    const int rank = rank_in(MPI_COMM_WORLD);
    const int size = size_of(MPI_COMM_WORLD);
    char name[64] = "";
    if (rank == 0) {
        snprintf(name, sizeof(name), "/tmp/host_programs.%ld", random());
    }
    MPI_Bcast(name, sizeof(name), MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_File file;
    MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                  MPI_INFO_NULL, &file);
    MPI_Datatype blocks;
    MPI_Type_vector(kBlocks, kBlock, kBlock * size, MPI_INT, &blocks);
    MPI_Type_commit(&blocks);
    const MPI_Offset begin = static_cast<MPI_Offset>(rank * kBlock * sizeof(int));
    MPI_File_set_view(file, begin, MPI_INT, blocks, "native", MPI_INFO_NULL);
    const std::vector<int> written = counted(kBlock * kBlocks, 100000 * rank);
    MPI_File_write_all(file, written.data(), kBlock * kBlocks, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<int> read(written.size());
    MPI_File_read_at_all(file, 0, read.data(), kBlock * kBlocks, MPI_INT, MPI_STATUS_IGNORE);
    report(MPI_COMM_WORLD, "file, own blocks", read == written);
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    MPI_File_read_at(file, kBlock * ((rank + 1) % size), read.data(), kBlock, MPI_INT,
                     MPI_STATUS_IGNORE);
    read.resize(kBlock);
    report(MPI_COMM_WORLD, "file, the next rank's block",
           read == counted(kBlock, 100000 * ((rank + 1) % size)));
    MPI_File_close(&file);
    MPI_Type_free(&blocks);
}

void run_session() {
    // This program may be built with an MPI that has no sessions.
    const auto function = [](const char *name) { return dlsym(RTLD_DEFAULT, name); };
    const auto init =
        reinterpret_cast<int (*)(MPI_Info, MPI_Errhandler, void **)>(function("MPI_Session_init"));
    const auto group_from = reinterpret_cast<int (*)(void *, const char *, MPI_Group *)>(
        function("MPI_Group_from_session_pset"));
    const auto comm_from =
        reinterpret_cast<int (*)(MPI_Group, const char *, MPI_Info, MPI_Errhandler, MPI_Comm *)>(
            function("MPI_Comm_create_from_group"));
    const auto finalize = reinterpret_cast<int (*)(void **)>(function("MPI_Session_finalize"));
    if (init == nullptr || group_from == nullptr || comm_from == nullptr || finalize == nullptr) {
        return;
    }
    void *session;
    MPI_Group group;
    MPI_Comm comm;
    init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    group_from(session, "mpi://WORLD", &group);
    comm_from(group, "gpushm.host_programs", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    report_world(comm, "session");
    MPI_Comm_free(&comm);
    finalize(&session);
}

}  // namespace gpushm::mpi_test
