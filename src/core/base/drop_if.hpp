// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>

namespace gpushm {

/** Erases the elements of a vector or a deque that meet a condition, which is called once for each,
 * in their order (std::erase_if of C++20). */
template <typename Sequence, typename Condition>
void drop_if(Sequence &sequence, Condition condition) {
    sequence.erase(std::remove_if(sequence.begin(), sequence.end(), condition), sequence.end());
}

}  // namespace gpushm
