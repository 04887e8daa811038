// SPDX-License-Identifier: BSD-3-Clause
#include "row.hpp"

#include <algorithm>

namespace gpushm::perf {
namespace {

// Less than any message takes. What OMB-UM's equations leave may be nothing.
constexpr double kLeastUs = 1e-3;

}  // namespace

const char *unit_of(const Cell &cell) {
    if (cell.measures_time()) {
        return "us";
    }
    return cell.test == Test::mbw_mr ? "messages/s" : "MB/s";
}

double megabytes(size_t size, double messages) {
    return static_cast<double>(size) * messages / 1e6;
}

Row row_of(const Cell &cell, size_t size, int pairs, std::vector<double> samples) {
    for (double &sample : samples) {
        sample = std::max(sample, kLeastUs);
    }
    const Figures figures = figures_of(std::move(samples), 1);
    Row row;
    row.size = size;
    row.messages = figures.count;
    if (cell.measures_time()) {
        row.min = figures.min;
        row.p50 = row.value = figures.median;
        row.p99 = figures.p99;
        row.max = figures.max;
        return row;
    }
    const double messages =
        static_cast<double>(window_of(size)) * pairs * (cell.test == Test::bibw ? 2 : 1);
    const auto rate = [&](double us) {
        const double in_a_second = messages / us * 1e6;
        return cell.test == Test::mbw_mr ? in_a_second : megabytes(size, in_a_second);
    };
    row.min = rate(figures.max);
    row.p50 = row.value = rate(figures.median);
    row.p99 = rate(figures.p99);
    row.max = rate(figures.min);
    row.messages = figures.count * static_cast<size_t>(messages);
    return row;
}

}  // namespace gpushm::perf
