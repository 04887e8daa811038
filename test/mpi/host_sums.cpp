// SPDX-License-Identifier: BSD-3-Clause
// MPI_Allreduce in several sizes, several times, and on communicators that end after few calls.
#include "host_programs.hpp"

#include <string>
#include <vector>

namespace gpushm::mpi_test {
namespace {

// The sum of what each rank has at `index`, in this call.
int part_of(int rank, int call, size_t index) {
    return rank * 1000 + call * 100 + static_cast<int>(index % 97);
}

bool sums_up(MPI_Comm comm, int count, int call) {
    int rank;
    int size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    std::vector<int> own(static_cast<size_t>(count));
    std::vector<int> expected(own.size());
    for (size_t i = 0; i < own.size(); i++) {
        own[i] = part_of(rank, call, i);
        for (int other = 0; other < size; other++) {
            expected[i] += part_of(other, call, i);
        }
    }
    std::vector<int> sum(own.size(), -1);
    if ((call + rank) % 3 == 0) {
        sum = own;
        MPI_Allreduce(MPI_IN_PLACE, sum.data(), count, MPI_INT, MPI_SUM, comm);
    } else {
        MPI_Allreduce(own.data(), sum.data(), count, MPI_INT, MPI_SUM, comm);
    }
    return sum == expected;
}

bool sum_up_repeatedly(MPI_Comm comm, int count, int calls) {
    bool all = true;
    for (int call = 0; call < calls; call++) {
        all = sums_up(comm, count, call) && all;
    }
    return all;
}

constexpr int kMany = 30000;

bool is_right_at_the_end = false;

int sum_up_at_the_end(MPI_Comm comm, int, void *, void *) {
    is_right_at_the_end = sum_up_repeatedly(comm, kMany, 3);
    return MPI_SUCCESS;
}

// A function of the program that is called when the communicator is freed sums up on it. The ranks
// have set the attribute before their first sum, and behind it.
bool sum_up_while_it_ends() {
    int rank;
    int key;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, sum_up_at_the_end, &key, nullptr);
    if (rank == 0) {
        MPI_Comm_set_attr(comm, key, nullptr);
    }
    const bool is_right = sum_up_repeatedly(comm, kMany, 3);
    if (rank != 0) {
        MPI_Comm_set_attr(comm, key, nullptr);
    }
    MPI_Comm_free(&comm);
    MPI_Comm_free_keyval(&key);
    return is_right && is_right_at_the_end;
}

}  // namespace

void run_sums() {
    for (const int count : {1, kMany, 700000}) {
        report(MPI_COMM_WORLD, "sum of " + std::to_string(count),
               sum_up_repeatedly(MPI_COMM_WORLD, count, 12));
    }
    for (int calls = 1; calls < 5; calls++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        report(comm, "sum of a new communicator, calls " + std::to_string(calls),
               sum_up_repeatedly(comm, kMany, calls));
        MPI_Comm_free(&comm);
    }
    report(MPI_COMM_WORLD, "sum while a communicator ends", sum_up_while_it_ends());
}

}  // namespace gpushm::mpi_test
