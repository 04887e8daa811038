// SPDX-License-Identifier: BSD-3-Clause
// Whether messages of this job may go between hosts by UCP's first generation of protocols.
#pragma once

namespace gpushm::openmpi {

/** Those that UCX takes before 1.16, or with UCX_PROTO_ENABLE=n. They fail in an assertion
 * (UCX 1.13.1 src/ucp/rndv/rndv.c, UCP_REQUEST_FLAG_RNDV_FRAG) where a message of a derived
 * datatype arrives from another host by rendezvous for a receive of contiguous GPU memory. True
 * also when that cannot be told. To be asked once UCX is loaded; costs nothing the second time.
 * Thread safe. */
bool first_protocols_between_hosts();

}  // namespace gpushm::openmpi
