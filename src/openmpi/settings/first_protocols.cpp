// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/settings/first_protocols.hpp"

#include "core/base/log.hpp"
#include "openmpi/binding/ucp_functions.hpp"

#include <ucp/api/ucp.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace gpushm::openmpi {
namespace {

/** Open MPI's mpirun sets the numbers of all ranks and of those on this host; other launchers do
 * not. Processes that ranks spawn on other hosts (MPI_Comm_spawn) are not seen. */
bool may_span_hosts() {
    const char *ranks = getenv("OMPI_COMM_WORLD_SIZE");
    const char *local_ranks = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    return ranks == nullptr || local_ranks == nullptr || strcmp(ranks, local_ranks) != 0;
}

/** All settings of the UCX in this process, as Open MPI reads them (opal/mca/common/ucx and
 * ompi/mca/pml/ucx/pml_ucx.c), one a line. Empty: they cannot be read. */
std::string ucp_settings() {
    void *const library = open_loaded_libucp();
    decltype(&ucp_config_read) read;
    decltype(&ucp_config_print) print;
    decltype(&ucp_config_release) release;
    ucp_config_t *config = nullptr;
    if (!find_function(library, "ucp_config_read", &read) ||
        !find_function(library, "ucp_config_print", &print) ||
        !find_function(library, "ucp_config_release", &release) ||
        read("MPI", nullptr, &config) != UCS_OK) {
        return {};
    }
    std::string settings;
    char *text = nullptr;
    size_t length = 0;
    FILE *const stream = open_memstream(&text, &length);
    if (stream != nullptr) {
        print(config, stream, nullptr, UCS_CONFIG_PRINT_CONFIG);
        fclose(stream);
        settings.assign(text, length);
        free(text);
    }
    release(config);
    return settings;
}

bool find_out() {
    const bool found =
        may_span_hosts() && ucp_settings().find("_PROTO_ENABLE=y") == std::string::npos;
    if (found) {
        GPUSHM_LOG(debug,
                   "the job may span hosts and UCX uses its first generation of protocols: derived "
                   "datatypes are packed before they are sent, and received in pieces");
    }
    return found;
}

}  // namespace

bool first_protocols_between_hosts() {
    static const bool found = find_out();
    return found;
}

}  // namespace gpushm::openmpi
