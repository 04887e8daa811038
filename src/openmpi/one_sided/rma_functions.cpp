// SPDX-License-Identifier: BSD-3-Clause
// The functions of UCP that Open MPI's windows communicate by.
#include "openmpi/one_sided/rma_functions.hpp"

#include "openmpi/binding/ucp_functions.hpp"

namespace gpushm::openmpi {
namespace {

RmaFunctions functions;

}  // namespace

bool find_rma_functions() {
    void *const library = open_loaded_libucp();
    return find_function(library, "ucp_mem_map", &functions.mem_map) &&
           find_function(library, "ucp_mem_query", &functions.mem_query) &&
           find_function(library, "ucp_mem_unmap", &functions.mem_unmap) &&
           find_function(library, "ucp_rkey_pack", &functions.rkey_pack) &&
           find_function(library, "ucp_rkey_buffer_release", &functions.rkey_buffer_release) &&
           find_function(library, "ucp_ep_rkey_unpack", &functions.ep_rkey_unpack) &&
           find_function(library, "ucp_rkey_destroy", &functions.rkey_destroy) &&
           find_function(library, "ucp_rkey_ptr", &functions.rkey_ptr) &&
           find_function(library, "ucp_ep_destroy", &functions.ep_destroy) &&
           find_function(library, "ucp_put_nbi", &functions.put_nbi) &&
           find_function(library, "ucp_get_nbi", &functions.get_nbi) &&
           find_function(library, "ucp_put_nbx", &functions.put_nbx) &&
           find_function(library, "ucp_get_nbx", &functions.get_nbx) &&
           find_function(library, "ucp_atomic_post", &functions.atomic_post) &&
           find_function(library, "ucp_atomic_fetch_nb", &functions.atomic_fetch_nb) &&
           find_function(library, "ucp_atomic_op_nbx", &functions.atomic_op_nbx) &&
           find_function(library, "ucp_request_check_status", &functions.request_check_status) &&
           find_function(library, "ucp_request_free", &functions.request_free);
}

const RmaFunctions &rma() {
    return functions;
}

const std::vector<std::string> &libraries_of_windows() {
    static const std::vector<std::string> names = {"mca_osc_ucx.so", "libmca_common_ucx.so",
                                                   "libopen-pal.so", "libmpi.so", "libopen_mpi.so"};
    return names;
}

}  // namespace gpushm::openmpi
