// SPDX-License-Identifier: BSD-3-Clause
#include "mpi_ranks.hpp"

#include <cstdio>

namespace gpushm::perf {
namespace {

constexpr int kTag = 1;

}  // namespace

MpiRanks::MpiRanks(MPI_Comm communicator) : communicator_(communicator) {
    MPI_Comm_rank(communicator, &rank_);
    MPI_Comm_size(communicator, &count_);
    MPI_Comm node;
    MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    int here = 0;
    MPI_Comm_size(node, &here);
    MPI_Comm_free(&node);
    on_one_node_ = here == count_;
}

void MpiRanks::barrier() {
    MPI_Barrier(communicator_);
}

double MpiRanks::told_by(int speaker, double value) {
    MPI_Bcast(&value, 1, MPI_DOUBLE, speaker, communicator_);
    return value;
}

std::string MpiRanks::first_text(const std::string &mine) {
    int speaker = mine.empty() ? count_ : rank_;
    MPI_Allreduce(MPI_IN_PLACE, &speaker, 1, MPI_INT, MPI_MIN, communicator_);
    if (speaker == count_) {
        return {};
    }
    char text[512];
    std::snprintf(text, sizeof(text), "%s", mine.c_str());
    MPI_Bcast(text, sizeof(text), MPI_CHAR, speaker, communicator_);
    return text;
}

void MpiRanks::add_up(std::vector<double> *values) {
    const int number = static_cast<int>(values->size());
    if (rank_ == 0) {
        MPI_Reduce(MPI_IN_PLACE, values->data(), number, MPI_DOUBLE, MPI_SUM, 0, communicator_);
    } else {
        MPI_Reduce(values->data(), nullptr, number, MPI_DOUBLE, MPI_SUM, 0, communicator_);
    }
}

void MpiRanks::send(int to, const void *data, size_t bytes) {
    MPI_Send(data, static_cast<int>(bytes), MPI_CHAR, to, kTag, communicator_);
}

void MpiRanks::receive(int from, void *data, size_t bytes) {
    MPI_Recv(data, static_cast<int>(bytes), MPI_CHAR, from, kTag, communicator_, MPI_STATUS_IGNORE);
}

void MpiRanks::start_send(int to, const void *data, size_t bytes) {
    MPI_Isend(data, static_cast<int>(bytes), MPI_CHAR, to, kTag, communicator_,
              &requests_.emplace_back());
}

void MpiRanks::start_receive(int from, void *data, size_t bytes) {
    MPI_Irecv(data, static_cast<int>(bytes), MPI_CHAR, from, kTag, communicator_,
              &requests_.emplace_back());
}

void MpiRanks::wait_next() {
    MPI_Wait(&requests_[waited_], MPI_STATUS_IGNORE);
    ++waited_;
}

void MpiRanks::wait_all() {
    MPI_Waitall(static_cast<int>(requests_.size() - waited_), requests_.data() + waited_,
                MPI_STATUSES_IGNORE);
    requests_.clear();
    waited_ = 0;
}

}  // namespace gpushm::perf
