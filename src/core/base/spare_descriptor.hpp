// SPDX-License-Identifier: BSD-3-Clause
// A descriptor that is kept for the moment in which none is left: a peer that connects must be
// answered, since UCX ends the process when it cannot (assertion in ucp_ep_get_cm_uct_ep,
// src/ucp/core/ucp_ep.inl, where the endpoint of an incoming connection finds no transport).
#pragma once

#include "core/base/unique_fd.hpp"

namespace gpushm {

/** Keeps one, unless there is one. Thread safe. */
void keep_spare_descriptor();

/** As open(2); where no descriptor is left the spare one makes room. Thread safe. */
UniqueFd open_with_spare_descriptor(const char *path, int flags);

}  // namespace gpushm
