// SPDX-License-Identifier: BSD-3-Clause
// Two ranks with UCP between them.
#pragma once

#include "../ucp_connection.hpp"
#include "ranks.hpp"

namespace gpushm::perf {

class UcpRanks : public Ranks {
public:
    /** `side` and `connection` outlive the object. */
    UcpRanks(Side &side, const UcpConnection &connection)
        : side_(side), connection_(connection), progress_(connection.progress_function()) {}

    int rank() const override { return side_.number(); }
    int count() const override { return 2; }
    bool share_clock() const override { return true; }

    void barrier() override { side_.barrier(progress_); }
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
    Side &side_;
    const UcpConnection &connection_;
    const Side::Progress progress_;
    std::vector<ucs_status_ptr_t> requests_;
    size_t waited_ = 0;  // how many of the first ones are over
};

}  // namespace gpushm::perf
