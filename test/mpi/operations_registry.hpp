// SPDX-License-Identifier: BSD-3-Clause
// The list of all tests.
#pragma once

#include "operations_trial.hpp"

#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace gpushm::mpi_test::operations {

struct Case {
    std::string name;  // "operation, variant"
    const Group *group;
    std::function<void(Trial &)> run;
};

// The cases, and the communicators that they use.
class Registry {
public:
    Registry();
    ~Registry();
    Registry(const Registry &) = delete;
    Registry &operator=(const Registry &) = delete;

    const Group &world() const { return groups_[0]; }
    const Group &self() const { return groups_[1]; }

    // Takes over a communicator, which is freed at the end.
    const Group &add_group(MPI_Comm comm);

    // Among all ranks, or among those of a group.
    void add(std::string name, std::function<void(Trial &)> run);
    void add(std::string name, const Group &group, std::function<void(Trial &)> run);

    // Says why some tests are not in the list.
    void leave_out(std::string why) { left_out_.push_back(std::move(why)); }

    const std::vector<Case> &cases() const { return cases_; }
    const std::vector<std::string> &left_out() const { return left_out_; }

private:
    std::deque<Group> groups_;  // stay where they are
    std::vector<Case> cases_;
    std::vector<std::string> left_out_;
};

// Each file of tests adds its own.
void add_point_to_point(Registry &registry);
void add_messages_in_flight(Registry &registry);
void add_packing(Registry &registry);
void add_absolute_addresses(Registry &registry);
void add_partitioned(Registry &registry);
void add_large_counts(Registry &registry);
void add_collectives(Registry &registry);
void add_neighbors(Registry &registry);
void add_intercommunicator(Registry &registry);
void add_reductions(Registry &registry);
void add_pairs(Registry &registry);
void add_one_sided(Registry &registry);
void add_atomics(Registry &registry);
void add_files(Registry &registry);
void add_lifetimes(Registry &registry);
void add_driver_calls(Registry &registry);

}  // namespace gpushm::mpi_test::operations
