// SPDX-License-Identifier: BSD-3-Clause
// The functions of UCP with which Open MPI sends and receives.
#pragma once

#include <ucp/api/ucp.h>

#include <dlfcn.h>

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

/** Call once, before ucp(). False, logged as debug: no loaded libucp has all functions. */
bool find_ucp_functions();

const UcpFunctions &ucp();

}  // namespace gpushm::openmpi
