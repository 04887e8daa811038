// SPDX-License-Identifier: BSD-3-Clause
#include "operations_counts.hpp"

namespace gpushm::mpi_test::operations {

std::vector<int> unit_counts(const Trial &trial, const TypePair &types, Largest largest) {
    constexpr size_t kMediumBytes = 4000;
    constexpr size_t kLargeBytes = 400000;
    const size_t unit = types.send->packed_size() * static_cast<size_t>(types.send_unit);
    std::vector<int> counts{1, 7};
    if (trial.quick()) {
        counts = {7};
    }
    if (kMediumBytes / unit > 7) {
        counts.push_back(static_cast<int>(kMediumBytes / unit));
    }
    if (largest == Largest::large) {
        counts.push_back(static_cast<int>(kLargeBytes / unit));
    }
    return counts;
}

}  // namespace gpushm::mpi_test::operations
