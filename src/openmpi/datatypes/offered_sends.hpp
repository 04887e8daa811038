// SPDX-License-Identifier: BSD-3-Clause
// Sends of short messages that must not wait for a receive that is not posted.
#pragma once

#include "core/copy/row_views.hpp"
#include "core/memory/memory_info.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

#include <ucp/api/ucp.h>

#include <optional>

namespace gpushm::openmpi {

/** Call once, before send_offered(). */
void prepare_offered_sends(const OpenMpiLibrary &library);

/** Sends `rows` of GPU memory of `info` (MessageOffer): a receiver that waits copies them, which
 * takes one copy instead of two through host memory. Returns when the program may use its memory:
 * null, or an error. Makes progress in all of Open MPI, also for what it has claimed meanwhile of
 * others. Empty: nothing was sent, because the rows are too long, or so short that two copies take
 * less, or peers cannot map them, or the receivers behind `ep` come late or receive in host memory.
 */
std::optional<ucs_status_ptr_t> send_offered(ucp_ep_h ep, const StridedRows &rows,
                                             const MemoryInfo &info, ucp_tag_t tag);

}  // namespace gpushm::openmpi
