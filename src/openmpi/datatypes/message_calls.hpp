// SPDX-License-Identifier: BSD-3-Clause
// Messages of derived datatypes in GPU memory, and sends that Open MPI wants to complete fast.
#pragma once

#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {

/** Replaces the functions of UCP with which Open MPI sends and receives. Open MPI gives UCX a
 * message of a derived datatype as callbacks that pack and unpack; UCX calls them for each 32 KiB,
 * in host memory. From Limits::staging on, a message in device memory is packed into one block of
 * device memory, which UCX sends; a message that is received arrives in such a block and is
 * unpacked when it is complete. The bytes on the way are equal, so each side decides for itself.
 * Changes nothing, logged as debug, if UCX lacks one of the functions. */
void redirect_message_calls(const OpenMpiLibrary &library, CallRedirection *redirection);

}  // namespace gpushm::openmpi
