// SPDX-License-Identifier: BSD-3-Clause
#include "core/base/no_throw.hpp"

#include "core/base/log.hpp"

namespace gpushm {

void report_want_of_memory() noexcept {
    GPUSHM_LOG_ONCE(error,
                    "memory allocation failed: operations end with an error; raise the limits of "
                    "the process (ulimit -v) or of its control group");
}

}  // namespace gpushm
