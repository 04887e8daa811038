// SPDX-License-Identifier: BSD-3-Clause
// What was measured of a cell, at one size.
#pragma once

#include "../figures.hpp"
#include "cell.hpp"
#include "page_faults.hpp"

#include <cstddef>
#include <vector>

namespace gpushm::perf {

struct Row {
    size_t size = 0;
    double value = 0;  // the median, as `p50`
    double min = 0;
    double p50 = 0;
    double p99 = 0;  // 99 of 100 are not worse
    double max = 0;
    size_t messages = 0;  // that were measured
    bool has_faults = false;
    PageFaults faults;  // of all ranks, for a message and its answer, a window or an operation
    bool cupti_counts = false;
};

/** us, MB/s (1e6 bytes a second) or messages/s. */
const char *unit_of(const Cell &cell);

/** `samples` in us, at least one: of a message or an operation, or of a window of each of the
 * `pairs`. */
Row row_of(const Cell &cell, size_t size, int pairs, std::vector<double> samples);

/** MB/s at a rate in messages/s. */
double megabytes(size_t size, double messages);

}  // namespace gpushm::perf
