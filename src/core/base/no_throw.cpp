// SPDX-License-Identifier: BSD-3-Clause
#include "core/base/no_throw.hpp"

#include "core/base/log.hpp"

namespace gpushm {

void report_want_of_memory() noexcept {
    GPUSHM_LOG_ONCE(error,
                    "there is no memory left (malloc fails): operations end with an error; look at "
                    "the limits of "
                    "the process (ulimit -v) and of its control group");
}

}  // namespace gpushm
