// SPDX-License-Identifier: BSD-3-Clause
// A component without a memory domain has no transport. UCX_TLS=^posix would do it, too, but it
// would override a list in UCX's configuration file, and apply to a UCX in which gpushm is not
// registered.
#include "uct_gpushm/abi/posix_component.hpp"

#include "uct_gpushm/abi/ucx_objects.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace gpushm::abi {
namespace {

constexpr char kPosix[] = "posix";  // src/uct/sm/mm/posix/mm_posix.c
constexpr char kGpushm[] = "gpushm";

using QueryDomains = ucs_status_t (*)(void *component, uct_md_resource_desc_t **resources,
                                      unsigned *count);

QueryDomains query_posix_domains;

bool has_element(std::string_view list, std::string_view element) {
    while (!list.empty()) {
        const size_t end = std::min(list.find(','), list.size());
        if (list.substr(0, end) == element) {
            return true;
        }
        list.remove_prefix(std::min(end + 1, list.size()));
    }
    return false;
}

/** Whether this value of UCX_TLS lets UCX choose among all transports. Null: it is not set. */
bool leaves_the_choice(const char *transports) {
    if (transports == nullptr) {
        return true;
    }
    return transports[0] == '^' ? !has_element(transports + 1, kGpushm)
                                : has_element(transports, "all");
}

ucs_status_t query_domains(void *component, uct_md_resource_desc_t **resources, unsigned *count) {
    // Open MPI's pml/ucx also reads the second name (ucp_config_read("MPI")).
    if (!leaves_the_choice(getenv("UCX_TLS")) || !leaves_the_choice(getenv("UCX_MPI_TLS"))) {
        return query_posix_domains(component, resources, count);
    }
    *resources = nullptr;
    *count = 0;
    return UCS_OK;
}

}  // namespace

void leave_out_posix() {
    const StructLayout<ComponentField> &layout = running().layout->component;
    if (unsigned char *const posix = find_component(running(), kPosix)) {
        query_posix_domains = load<QueryDomains>(posix, layout[ComponentField::query_md_resources]);
        store(posix, layout, ComponentField::query_md_resources, &query_domains);
    }
}

}  // namespace gpushm::abi
