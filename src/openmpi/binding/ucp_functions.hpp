// SPDX-License-Identifier: BSD-3-Clause
// The functions of UCP that Open MPI sends and receives with.
#pragma once

#include <ucp/api/ucp.h>

#include <dlfcn.h>

namespace gpushm::openmpi {

/** The libucp in this process, as dlopen() returns it; null when there is none. */
void *open_loaded_libucp();

/** Whether `library`, which open_loaded_libucp() returned, or one that it is linked to has the
 * function. */
template <typename Function>
bool find_function(void *library, const char *name, Function *function) {
    *function = reinterpret_cast<Function>(library != nullptr ? dlsym(library, name) : nullptr);
    return *function != nullptr;
}

/** Public functions (UCX's ucp/api/ucp.h), of the UCX in this process; we are linked to none. */
struct UcpFunctions {
    decltype(&ucp_tag_send_nbx) tag_send_nbx;
    decltype(&ucp_tag_send_sync_nbx) tag_send_sync_nbx;
    decltype(&ucp_tag_recv_nbx) tag_recv_nbx;
    decltype(&ucp_tag_msg_recv_nbx) tag_msg_recv_nbx;
    decltype(&ucp_tag_send_nb) tag_send_nb;
    decltype(&ucp_tag_send_sync_nb) tag_send_sync_nb;
    decltype(&ucp_tag_recv_nb) tag_recv_nb;
    decltype(&ucp_tag_msg_recv_nb) tag_msg_recv_nb;
    decltype(&ucp_request_test) request_test;
    decltype(&ucp_request_free) request_free;
    decltype(&ucp_dt_create_generic) dt_create_generic;
    decltype(&ucp_dt_destroy) dt_destroy;
};

/** False, with a line of debug output, when no libucp is loaded that has all of them. To be called
 * once, before ucp(). */
bool find_ucp_functions();

const UcpFunctions &ucp();

}  // namespace gpushm::openmpi
