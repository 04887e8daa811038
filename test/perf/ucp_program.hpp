// SPDX-License-Identifier: BSD-3-Clause
// What the programs have in common that measure two processes with UCP between them: options, the
// start of the sides, and the end.
#pragma once

#include "driver.hpp"
#include "figures.hpp"
#include "options.hpp"
#include "side_pair.hpp"
#include "ucp_connection.hpp"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace gpushm::perf {

/** One side while it measures. */
struct MeasuringSide {
    Side &side;
    const UcpConnection &connection;
    const Driver *driver;   // null where no side has GPU memory
    int device;             // of this side, current to the calling thread
    std::vector<int> cpus;  // as on the command line
};

struct UcpProgram {
    const char *name;
    /** Its options; with devices, cpus, seconds and limit, which all programs have. */
    std::map<std::string, std::string> options;
    /** Called before anything is started: throws std::runtime_error when the options are wrong.
     * Whether a CUDA driver is needed. */
    std::function<bool(const Options &options)> check;
    /** In both processes. May throw std::runtime_error. */
    std::function<void(const Options &options, const MeasuringSide &here)> measure;
};

/** `main` of a program; the status with which it is to end. */
int run_ucp_program(const UcpProgram &program, int argc, char **argv);

/** Does it n times; the times on side 0, in us. */
using Run = std::function<std::vector<double>(uint64_t n)>;

/** Both sides call it: `run` as often as `effort` says, after a warm-up. The figures of side 0,
 * each sample divided by `divisor`. */
Figures measure_on_both_sides(const MeasuringSide &here, const Run &run, const Effort &effort,
                              double divisor);

}  // namespace gpushm::perf
