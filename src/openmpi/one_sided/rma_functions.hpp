// SPDX-License-Identifier: BSD-3-Clause
// The functions of UCP with which Open MPI's windows communicate.
#pragma once

#include <ucp/api/ucp.h>

#include <string>
#include <vector>

namespace gpushm::openmpi {

/** Public functions (ucp/api/ucp.h) of the UCX in this process. gpushm is linked to no UCX. */
struct RmaFunctions {
    decltype(&ucp_mem_map) mem_map;
    decltype(&ucp_mem_query) mem_query;
    decltype(&ucp_mem_unmap) mem_unmap;
    decltype(&ucp_rkey_pack) rkey_pack;
    decltype(&ucp_rkey_buffer_release) rkey_buffer_release;
    decltype(&ucp_ep_rkey_unpack) ep_rkey_unpack;
    decltype(&ucp_rkey_destroy) rkey_destroy;
    decltype(&ucp_rkey_ptr) rkey_ptr;
    decltype(&ucp_ep_destroy) ep_destroy;
    decltype(&ucp_put_nbi) put_nbi;
    decltype(&ucp_get_nbi) get_nbi;
    decltype(&ucp_put_nbx) put_nbx;
    decltype(&ucp_get_nbx) get_nbx;
    decltype(&ucp_atomic_post) atomic_post;
    decltype(&ucp_atomic_fetch_nb) atomic_fetch_nb;
    decltype(&ucp_atomic_op_nbx) atomic_op_nbx;
    decltype(&ucp_request_check_status) request_check_status;
    decltype(&ucp_request_free) request_free;
};

/** False when no libucp is loaded that has all of them. To be called once, before rma(). */
bool find_rma_functions();

const RmaFunctions &rma();

/** The libraries whose calls are replaced: osc/ucx is in one of them, or its inline functions are.
 */
const std::vector<std::string> &libraries_of_windows();

}  // namespace gpushm::openmpi
