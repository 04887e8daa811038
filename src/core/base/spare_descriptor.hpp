// SPDX-License-Identifier: BSD-3-Clause
// A descriptor that is kept open for the moment in which no other is left. A peer that connects
// must be answered: UCX ends the process when it cannot (assertion in ucp_ep_get_cm_uct_ep,
// src/ucp/core/ucp_ep.inl, where the endpoint of an incoming connection finds no transport).
#pragma once

#include "core/base/unique_fd.hpp"

namespace gpushm {

/** Opens the spare descriptor, unless it is open. Thread safe. */
void keep_spare_descriptor();

/** As open(2). Where no descriptor is left, it closes the spare one to make room. Thread safe. */
UniqueFd open_with_spare_descriptor(const char *path, int flags);

}  // namespace gpushm
