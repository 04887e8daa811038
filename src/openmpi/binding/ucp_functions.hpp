// SPDX-License-Identifier: BSD-3-Clause
// The functions of UCP with which Open MPI communicates.
#pragma once

#include "openmpi/binding/call_redirection.hpp"

#include <ucp/api/ucp.h>

#include <dlfcn.h>
#include <string>
#include <vector>

namespace gpushm::openmpi {

/** A dlopen() handle of the libucp in this process; null: there is none. */
void *open_loaded_libucp();

/** Finds a function in `library`, which open_loaded_libucp() returned, or in the libraries that it
 * is linked to. False: there is none. */
template <typename Function>
bool find_function(void *library, const char *name, Function *function) {
    *function = reinterpret_cast<Function>(library != nullptr ? dlsym(library, name) : nullptr);
    return *function != nullptr;
}

/** Public functions (ucp/api/ucp.h) of the UCX in this process. gpushm is linked to no UCX. */
struct UcpFunctions {
    decltype(&ucp_tag_send_nbx) tag_send_nbx;
    decltype(&ucp_tag_send_sync_nbx) tag_send_sync_nbx;
    decltype(&ucp_tag_msg_recv_nbx) tag_msg_recv_nbx;
    decltype(&ucp_get_nbx) get_nbx;
    decltype(&ucp_request_check_status) request_check_status;
    decltype(&ucp_request_free) request_free;
    decltype(&ucp_mem_map) mem_map;
    decltype(&ucp_mem_unmap) mem_unmap;
    decltype(&ucp_rkey_pack) rkey_pack;
    decltype(&ucp_rkey_buffer_release) rkey_buffer_release;
    decltype(&ucp_ep_rkey_unpack) ep_rkey_unpack;
    decltype(&ucp_rkey_destroy) rkey_destroy;
};

/** Valid after redirect_ucp_calls(). */
const UcpFunctions &ucp();

/** CallRedirection::add_all() for functions of UCP. False also if no libucp is loaded that has
 * those of ucp(). */
bool redirect_ucp_calls(const std::vector<ReplacedCall> &calls, CallRedirection *redirection,
                        const std::vector<std::string> &only_in);

}  // namespace gpushm::openmpi
