// SPDX-License-Identifier: BSD-3-Clause
// Ranks of MPI.
#pragma once

#include "ranks.hpp"

#include <mpi.h>

namespace gpushm::perf {

/** Those of a communicator, which outlives the object. MPI ends the job when it fails. */
class MpiRanks : public Ranks {
public:
    explicit MpiRanks(MPI_Comm communicator);

    MPI_Comm communicator() const { return communicator_; }

    int rank() const override { return rank_; }
    int count() const override { return count_; }
    bool share_clock() const override { return on_one_node_; }

    void barrier() override;
    double told_by(int speaker, double value) override;
    std::string first_text(const std::string &mine) override;
    void add_up(std::vector<double> *values) override;

    void send(int to, const void *data, size_t bytes) override;
    void receive(int from, void *data, size_t bytes) override;
    void start_send(int to, const void *data, size_t bytes) override;
    void start_receive(int from, void *data, size_t bytes) override;
    void wait_next() override;
    void wait_all() override;

private:
    const MPI_Comm communicator_;
    int rank_ = 0;
    int count_ = 0;
    bool on_one_node_ = false;
    std::vector<MPI_Request> requests_;
    size_t waited_ = 0;  // how many of the first ones are over
};

}  // namespace gpushm::perf
