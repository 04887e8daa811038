// SPDX-License-Identifier: BSD-3-Clause
// Messages of derived datatypes in GPU memory, and sends that are to complete fast.
#pragma once

#include "openmpi/binding/call_redirection.hpp"

namespace gpushm::openmpi {

/** Open MPI hands UCX a message of a derived datatype as callbacks that pack and unpack, which UCX
 * calls for each 32 KiB, in host memory. From Limits::staging on, one in device memory is packed
 * into a block of device memory at once, and UCX gets that; or it arrives in one, and is unpacked
 * when it is complete. What is sent stays the same: the peer may do otherwise. Nothing happens,
 * with a line of debug output, where UCX has not the functions. */
void redirect_message_calls(CallRedirection *redirection);

}  // namespace gpushm::openmpi
