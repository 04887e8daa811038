// SPDX-License-Identifier: BSD-3-Clause
// What operations between processes cost, as UCP's choice of protocols needs it.
#pragma once

#include "uct_gpushm/abi/abi.hpp"

namespace gpushm::uct {

/** Corrects UCX's estimate, which knows neither that a zero-copy message is copied into shared
 * memory nor what a copy by a GPU costs. The second generation of protocols, the default from
 * UCX 1.16 on, chooses by it. */
void estimate_shared_memory_cost(abi::PerfEstimate &estimate);

/** The bandwidth that the interface reports, in bytes per second. The first generation of protocols
 * divides a transfer between transports by it. */
double interface_bandwidth();

/** The seconds that a registration is reported to take. With the first generation of protocols UCP
 * then copies host memory of up to a slot's size instead of sending it "zero-copy", which registers
 * the buffer and copies it as well (doc/decisions/uct_gpushm-host-messages.md). 0 if the process
 * may use a GPU and may send lists of buffers (UCP_DATATYPE_IOV): UCX before 1.16 takes them for
 * host memory and copies them by memcpy unless it sends them zero-copy (1.13.1
 * src/ucp/tag/tag_send.c, ucp_tag_send_req_init(), and src/ucp/proto/proto_am.inl). Open MPI sends
 * no lists. */
double registration_overhead();

/** Into how many paths the device is reported to be divided. One, unless the first generation of
 * protocols may send eager messages on several lanes (UCX_MAX_EAGER_RAILS): it then calls am_zcopy
 * of all lanes if the first lane has one, and UCX's own shared memory has none (1.13.1
 * src/ucp/proto/proto_am.inl, ucp_do_am_zcopy_multi()). With enough paths all of these lanes belong
 * to this transport. */
unsigned device_paths();

}  // namespace gpushm::uct
