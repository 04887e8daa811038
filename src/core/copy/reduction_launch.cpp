// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/reduction_launch.hpp"

#include <algorithm>
#include <cstdint>

namespace gpushm {

KernelLaunch reduction_launch(ReductionParameters *parameters) {
    constexpr uint64_t kMaxBlocks = 1056;  // doc/decisions/copy-reductions.md
    const uint64_t number_bytes = element_bytes(parameters->type);
    const uint64_t words = words_of(*parameters, number_bytes);
    const uint64_t elements = words != 0 ? words : parameters->count;
    const uint64_t blocks = (elements + kReductionThreads - 1) / kReductionThreads;
    return {Kernel::reduce, static_cast<unsigned>(std::min(blocks, kMaxBlocks)), kReductionThreads,
            parameters};
}

}  // namespace gpushm
