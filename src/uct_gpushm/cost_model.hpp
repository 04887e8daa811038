// SPDX-License-Identifier: BSD-3-Clause
// What operations between processes cost, as UCP's choice of protocols needs it.
#pragma once

#include "uct_gpushm/abi/abi.hpp"

namespace gpushm::uct {

/** Corrects UCX's estimate, which knows neither that a "zero-copy" message is copied into shared
 * memory nor what a GPU costs. Proto v2 of UCX (default from 1.16 on) chooses by it. */
void estimate_shared_memory_cost(abi::PerfEstimate &estimate);

/** Bytes a second that the interface is said to move. The first generation of protocols divides a
 * transfer between transports by it. */
double interface_bandwidth();

/** For the first generation of protocols: seconds that a registration is said to take, so that UCP
 * has host memory of up to a slot's size copied. 0 where there may be GPU memory: UCX before 1.16
 * takes lists of buffers (UCP_DATATYPE_IOV) for host memory, and copies them by memcpy where it
 * does not send them zero-copy (1.13.1 src/ucp/tag/tag_send.c, ucp_tag_send_req_init(), and
 * src/ucp/proto/proto_am.inl). */
double registration_overhead();

/** Into how many paths the device is said to be divided. One, unless the first generation of
 * protocols is told to send eager messages by several lanes (UCX_MAX_EAGER_RAILS): it then calls
 * am_zcopy of all of them if that of the first lane exists, and the shared memory of UCX has none
 * (1.13.1 src/ucp/proto/proto_am.inl, ucp_do_am_zcopy_multi()). With enough paths all of these
 * lanes are ours. */
unsigned device_paths();

}  // namespace gpushm::uct
