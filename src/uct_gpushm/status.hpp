// SPDX-License-Identifier: BSD-3-Clause
// Status of the core in UCX's terms, and UCX completions in the core's.
#pragma once

#include "core/base/status.hpp"
#include "core/transport/connection.hpp"

#include <uct/api/uct.h>

namespace gpushm::uct {

/** Of all but ok. */
ucs_status_t failure_to_ucs(Status status);

inline ucs_status_t to_ucs(Status status) {
    return status == Status::ok ? UCS_OK : failure_to_ucs(status);
}

/** Counts down `completion` when it is called; nothing for null. */
Completion to_core(uct_completion_t *completion);

}  // namespace gpushm::uct
