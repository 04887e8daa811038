// SPDX-License-Identifier: BSD-3-Clause
// Whether messages between hosts may use UCP's first generation of protocols.
#pragma once

namespace gpushm::openmpi {

/** The first generation is the default before UCX 1.16, and with UCX_PROTO_ENABLE=n. It fails in an
 * assertion (UCX 1.13.1 src/ucp/rndv/rndv.c, UCP_REQUEST_FLAG_RNDV_FRAG) if a message of a derived
 * datatype arrives from another host by rendezvous for a receive of contiguous GPU memory. True
 * also if the answer cannot be found. Call it when UCX is loaded; only the first call takes time.
 * Thread safe. */
bool first_protocols_between_hosts();

}  // namespace gpushm::openmpi
