// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/memtype_cache.hpp"

#include "uct_gpushm/abi/abi.hpp"

#include <ucs/memory/memory_type.h>

namespace gpushm::uct {
namespace {

constexpr int kUnknownSysDevice = 0xff;  // UCS_SYS_DEVICE_ID_UNKNOWN
constexpr size_t kPage = 4096;

// A region that is nobody's buffer.
alignas(kPage) unsigned char unknown_region[kPage];

}  // namespace

bool use_empty_memtype_cache() {
    const abi::Symbols &ucx = abi::symbols();
    // A look-up makes it, if it may be there (UCX_MEMTYPE_CACHE), and writes a ucs_memory_info_t of 24 to 32 bytes where it
    // finds something.
    unsigned char found[128];
    ucx.memtype_cache_lookup(unknown_region, 1, found);
    return *ucx.memtype_cache_global_instance != nullptr;
}

void disable_memtype_cache() {
    const abi::Symbols &ucx = abi::symbols();
    // ucp_memory_detect_internal (src/ucp/core/ucp_context.h) asks the domains when the cache is off.
    ucx.global_opts_set_value("MEMTYPE_CACHE", "n");
    if (*ucx.memtype_cache_global_instance != nullptr) {
        // Somebody has made the cache already: then UCP skips detection for short messages while it
        // is empty (ucs_memtype_cache_is_empty, src/ucs/memory/memtype_cache.h), so it must not be.
        ucx.memtype_cache_update(unknown_region, sizeof(unknown_region), UCS_MEMORY_TYPE_UNKNOWN,
                                 kUnknownSysDevice, 0);
    }
}

}  // namespace gpushm::uct
