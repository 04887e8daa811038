// SPDX-License-Identifier: BSD-3-Clause
#include "improvement.hpp"

#include <algorithm>
#include <cstdio>

namespace gpushm::perf {
namespace {

constexpr size_t kSmall = size_t{64} << 10;

/** The row of the same test, kinds and size without staging; null if there is none. */
const MeasuredRow *direct_row(const std::vector<MeasuredRow> &rows, const MeasuredRow &staged) {
    Cell direct = staged.cell;
    direct.situation = Situation::normal;
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const MeasuredRow &one) {
        return one.cell == direct && one.row.size == staged.row.size;
    });
    return found != rows.end() ? &*found : nullptr;
}

double improvement(const MeasuredRow &direct, const MeasuredRow &staged) {
    const double ratio = direct.row.value / staged.row.value;
    return 100 * (staged.cell.measures_time() ? 1 - ratio : ratio - 1);
}

struct Mean {
    double sum = 0;
    unsigned count = 0;

    void add(double value) {
        sum += value;
        ++count;
    }
    std::string text() const {
        char number[32] = "-";
        if (count != 0) {
            std::snprintf(number, sizeof(number), "%.1f", sum / count);
        }
        return number;
    }
};

/** Of one cell. 64 KiB count as small and as large, as in the paper. */
struct CellImprovement {
    Mean small, large, all;

    void add(size_t size, double percent) {
        all.add(percent);
        if (size <= kSmall) {
            small.add(percent);
        }
        if (size >= kSmall) {
            large.add(percent);
        }
    }
};

std::string line_of(const Cell &cell, const CellImprovement &improvement) {
    char line[160];
    std::snprintf(line, sizeof(line), "# %-10s%-20s%-18s%12s%12s%12s", name_of(cell.test).c_str(),
                  (name_of(cell.from) + "-" + name_of(cell.to)).c_str(),
                  name_of(cell.situation).c_str(), improvement.small.text().c_str(),
                  improvement.large.text().c_str(), improvement.all.text().c_str());
    return line;
}

}  // namespace

std::vector<std::string> improvement_table(const std::vector<MeasuredRow> &rows) {
    std::vector<std::string> lines;
    // The rows of a cell lie side by side.
    for (size_t i = 0; i < rows.size();) {
        const Cell cell = rows[i].cell;
        CellImprovement improved;
        for (; i < rows.size() && rows[i].cell == cell; ++i) {
            const MeasuredRow *const direct =
                cell.is_staged() ? direct_row(rows, rows[i]) : nullptr;
            if (direct != nullptr) {
                improved.add(rows[i].row.size, improvement(*direct, rows[i]));
            }
        }
        if (improved.all.count != 0) {
            lines.push_back(line_of(cell, improved));
        }
    }
    if (!lines.empty()) {
        lines.insert(lines.begin(),
                     {"# Less time, or more bandwidth, than with copies by hand: percent, mean of "
                      "the sizes",
                      "# Test      Memory              than with            up to 64k    from 64k  "
                      "       all"});
    }
    return lines;
}

}  // namespace gpushm::perf
