// SPDX-License-Identifier: BSD-3-Clause
// Converts the core's Status to UCX's, and UCX's completions to the core's.
#pragma once

#include "core/base/status.hpp"
#include "core/transport/connection.hpp"

#include <uct/api/uct.h>

namespace gpushm::uct {

/** For all values but ok. */
ucs_status_t failure_to_ucs(Status status);

inline ucs_status_t to_ucs(Status status) {
    return status == Status::ok ? UCS_OK : failure_to_ucs(status);
}

/** A completion that counts `completion` down. Null: a completion that does nothing. */
Completion to_core(uct_completion_t *completion);

}  // namespace gpushm::uct
