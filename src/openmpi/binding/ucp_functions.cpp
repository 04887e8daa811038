// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/binding/ucp_functions.hpp"

#include "openmpi/binding/open_mpi_library.hpp"

namespace gpushm::openmpi {
namespace {

UcpFunctions functions;

bool find_functions(void *library) {
    return find_function(library, "ucp_tag_send_nbx", &functions.tag_send_nbx) &&
           find_function(library, "ucp_tag_send_sync_nbx", &functions.tag_send_sync_nbx) &&
           find_function(library, "ucp_tag_msg_recv_nbx", &functions.tag_msg_recv_nbx) &&
           find_function(library, "ucp_get_nbx", &functions.get_nbx) &&
           find_function(library, "ucp_request_check_status", &functions.request_check_status) &&
           find_function(library, "ucp_request_free", &functions.request_free) &&
           find_function(library, "ucp_mem_map", &functions.mem_map) &&
           find_function(library, "ucp_mem_unmap", &functions.mem_unmap) &&
           find_function(library, "ucp_rkey_pack", &functions.rkey_pack) &&
           find_function(library, "ucp_rkey_buffer_release", &functions.rkey_buffer_release) &&
           find_function(library, "ucp_ep_rkey_unpack", &functions.ep_rkey_unpack) &&
           find_function(library, "ucp_rkey_destroy", &functions.rkey_destroy);
}

}  // namespace

void *open_loaded_libucp() {
    // libucp-<number>.so.0 is the name in packages of Python's index.
    return open_loaded_library({"libucp.so", "libucp-"});
}

const UcpFunctions &ucp() {
    return functions;
}

bool redirect_ucp_calls(const std::vector<ReplacedCall> &calls, CallRedirection *redirection,
                        const std::vector<std::string> &only_in) {
    void *const library = open_loaded_libucp();
    const auto find = [library](const char *symbol) { return dlsym(library, symbol); };
    return find_functions(library) && redirection->add_all(calls, find, only_in);
}

}  // namespace gpushm::openmpi
