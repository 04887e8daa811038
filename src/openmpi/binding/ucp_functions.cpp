// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/binding/ucp_functions.hpp"

#include "core/base/log.hpp"

#include <link.h>

#include <cstring>
#include <string>

namespace gpushm::openmpi {
namespace {

UcpFunctions functions;

/** Also finds libucp-<number>.so.0, the name in packages of Python's index. */
int note_path(dl_phdr_info *object, size_t, void *argument) {
    const char *slash = strrchr(object->dlpi_name, '/');
    if (slash != nullptr &&
        (strncmp(slash, "/libucp.so", 10) == 0 || strncmp(slash, "/libucp-", 8) == 0)) {
        *static_cast<std::string *>(argument) = object->dlpi_name;
    }
    return 0;
}

}  // namespace

void *open_loaded_libucp() {
    std::string path;
    dl_iterate_phdr(note_path, &path);
    return path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
}

bool find_ucp_functions() {
    void *const library = open_loaded_libucp();
    const bool found =
        find_function(library, "ucp_tag_send_nbx", &functions.tag_send_nbx) &&
        find_function(library, "ucp_tag_send_sync_nbx", &functions.tag_send_sync_nbx) &&
        find_function(library, "ucp_tag_recv_nbx", &functions.tag_recv_nbx) &&
        find_function(library, "ucp_tag_msg_recv_nbx", &functions.tag_msg_recv_nbx) &&
        find_function(library, "ucp_tag_send_nb", &functions.tag_send_nb) &&
        find_function(library, "ucp_tag_send_sync_nb", &functions.tag_send_sync_nb) &&
        find_function(library, "ucp_tag_recv_nb", &functions.tag_recv_nb) &&
        find_function(library, "ucp_tag_msg_recv_nb", &functions.tag_msg_recv_nb) &&
        find_function(library, "ucp_request_test", &functions.request_test) &&
        find_function(library, "ucp_request_free", &functions.request_free) &&
        find_function(library, "ucp_dt_create_generic", &functions.dt_create_generic) &&
        find_function(library, "ucp_dt_destroy", &functions.dt_destroy);
    if (!found) {
        GPUSHM_LOG(debug,
                   "libucp lacks a function that gpushm needs: derived datatypes are packed in "
                   "pieces, in host memory");
    }
    return found;
}

const UcpFunctions &ucp() {
    return functions;
}

}  // namespace gpushm::openmpi
