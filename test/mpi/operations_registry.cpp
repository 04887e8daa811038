// SPDX-License-Identifier: BSD-3-Clause
#include "operations_registry.hpp"

namespace gpushm::mpi_test::operations {
namespace {

MPI_Comm duplicate(MPI_Comm from) {
    MPI_Comm comm;
    MPI_Comm_dup(from, &comm);
    return comm;
}

}  // namespace

Registry::Registry() {
    add_group(duplicate(MPI_COMM_WORLD));
    add_group(duplicate(MPI_COMM_SELF));
    add_point_to_point(*this);
    add_messages_in_flight(*this);
    add_packing(*this);
    add_absolute_addresses(*this);
    add_partitioned(*this);
    add_large_counts(*this);
    add_collectives(*this);
    add_neighbors(*this);
    add_intercommunicator(*this);
    add_reductions(*this);
    add_pairs(*this);
    add_one_sided(*this);
    add_atomics(*this);
    add_files(*this);
    add_lifetimes(*this);
    add_driver_calls(*this);
}

Registry::~Registry() {
    cases_.clear();
    for (Group &group : groups_) {
        MPI_Comm_free(&group.comm);
    }
}

const Group &Registry::add_group(MPI_Comm comm) {
    Group group{comm, 0, 0};
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &group.rank);
    MPI_Comm_size(comm, &group.size);
    groups_.push_back(group);
    return groups_.back();
}

void Registry::add(std::string name, std::function<void(Trial &)> run) {
    add(std::move(name), world(), std::move(run));
}

void Registry::add(std::string name, const Group &group, std::function<void(Trial &)> run) {
    cases_.push_back({std::move(name), &group, std::move(run)});
}

}  // namespace gpushm::mpi_test::operations
