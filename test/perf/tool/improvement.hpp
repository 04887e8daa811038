// SPDX-License-Identifier: BSD-3-Clause
// What giving device memory to the library gains over copies by hand: the percentages of Ji et al.,
// figure 8.
#pragma once

#include "cell.hpp"
#include "row.hpp"

#include <string>
#include <vector>

namespace gpushm::perf {

struct MeasuredRow {
    Cell cell;
    Row row;
};

/** Lines of a table, each with "#" before it: the mean over the sizes of how much less time a
 * message takes than when it is staged, or how much more bandwidth there is. Empty unless something
 * was measured both staged and not. */
std::vector<std::string> improvement_table(const std::vector<MeasuredRow> &rows);

}  // namespace gpushm::perf
