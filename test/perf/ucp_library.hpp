// SPDX-License-Identifier: BSD-3-Clause
// The libucp that the loader finds, opened at run time: the headers of one UCX do for all, and no
// file for linking is needed where only a run-time package is installed.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

namespace gpushm::perf {

// clang-format off
#define GPUSHM_PERF_UCP_FUNCTIONS(X)                                                               \
    X(ucp_get_version_string) X(ucp_init_version) X(ucp_cleanup)                                   \
    X(ucp_worker_create) X(ucp_worker_destroy) X(ucp_worker_query)                                 \
    X(ucp_worker_release_address) X(ucp_worker_progress)                                           \
    X(ucp_ep_create) X(ucp_ep_close_nbx)                                                           \
    X(ucp_tag_send_nbx) X(ucp_tag_recv_nbx) X(ucp_request_check_status) X(ucp_request_free)        \
    X(ucs_status_string)
// clang-format on

/** The functions as members. */
struct UcpLibrary {
    /** Throws std::runtime_error where there is none. */
    UcpLibrary();

    /** Throws std::runtime_error unless `status` is UCS_OK. */
    void require(ucs_status_t status, const char *what) const;

#define X(function) decltype(&::function) function = nullptr;
    GPUSHM_PERF_UCP_FUNCTIONS(X)
#undef X
};

}  // namespace gpushm::perf
