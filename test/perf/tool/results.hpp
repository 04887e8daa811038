// SPDX-License-Identifier: BSD-3-Clause
// The results of a run: tables as OSU's on standard output, a JSON file, and progress on a
// terminal.
#pragma once

#include "cell.hpp"
#include "improvement.hpp"
#include "row.hpp"

#include <string>
#include <vector>

namespace gpushm::perf {

/** What the results are of. */
struct RunFacts {
    std::string program;  // "gpushm-perf"
    std::string carrier;  // "UCP", as in the head of a table
    std::string driver;   // empty: none was used
    bool simulated = false;
    std::vector<std::string> gpus;
    std::string ucx;  // empty: unknown
    std::string mpi;  // empty: none
    int ranks = 2;
};

/** Of rank 0. */
class Results {
public:
    /** `row_count`: how much is going to be measured. `json_file`: empty, or a file that is written
     * anew after each row. Throws std::runtime_error when it cannot be. */
    Results(const RunFacts &facts, const std::string &json_file, size_t row_count);
    ~Results();
    Results(const Results &) = delete;
    Results &operator=(const Results &) = delete;

    /** Prints the head of a table. `refusal`: why CUPTI counts no page faults, or empty. */
    void begin(const Cell &cell, const std::string &refusal);
    /** What is measured now. */
    void announce(const Cell &cell, size_t size);
    void add(const Cell &cell, const Row &row);
    /** A cell that could not be measured, or, with wrong data, the end of the run. */
    void fail(const Cell &cell, const std::string &text);

    /** All is measured. */
    void finish() const;

private:
    void clear_progress() const;
    std::string json() const;
    void write_json() const;

    const RunFacts facts_;
    const std::string json_file_;
    const std::string date_;
    const size_t row_count_;
    const bool shows_progress_;
    size_t announced_ = 0;
    std::vector<MeasuredRow> measured_;
    std::vector<std::string> rows_;  // the same as JSON objects
    std::vector<std::string> errors_;
};

}  // namespace gpushm::perf
