// SPDX-License-Identifier: BSD-3-Clause
// The command line of gpushm-perf and gpushm-perf-mpi.
#pragma once

#include "../figures.hpp"
#include "../options.hpp"
#include "cell.hpp"

#include <map>
#include <string>
#include <vector>

namespace gpushm::perf {

struct Plan {
    /** The options of both programs, with their defaults. */
    static std::map<std::string, std::string> defaults();

    /** Throws std::runtime_error when an option is wrong. `collectives`: whether the program has
     * them. */
    Plan(const Options &options, bool collectives);

    /** Leaves out what needs a GPU; false if nothing is left. */
    bool leave_out_gpus();
    /** Whether any cell needs one. */
    bool needs_gpu() const;

    /** Those that are measured: a barrier has no size, and reductions add floats. */
    std::vector<size_t> sizes_of(const Cell &cell) const;
    /** How many figures that makes in all. */
    size_t row_count() const;

    std::vector<Cell> cells;
    std::vector<size_t> sizes;
    Effort effort;
    size_t piece_bytes = 0;    // of a message in Situation::staged_pipelined
    std::vector<int> devices;  // of ranks in turn; empty: all that there are
    std::string json_file;     // empty: none
};

}  // namespace gpushm::perf
