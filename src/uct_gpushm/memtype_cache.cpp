// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/memtype_cache.hpp"

#include "uct_gpushm/abi/abi.hpp"

#include <ucs/memory/memory_type.h>

namespace gpushm::uct {
namespace {

constexpr int kUnknownSysDevice = 0xff;  // UCS_SYS_DEVICE_ID_UNKNOWN
constexpr size_t kPage = 4096;

// A region that no message uses.
alignas(kPage) unsigned char unknown_region[kPage];

}  // namespace

void disable_memtype_cache() {
    const abi::Symbols &ucx = abi::symbols();
    // ucp_memory_detect_internal (src/ucp/core/ucp_context.h) asks the memory domains if the cache
    // is off.
    ucx.global_opts_set_value("MEMTYPE_CACHE", "n");
    if (*ucx.memtype_cache_global_instance != nullptr) {
        // The cache exists already. UCP skips the detection for short messages while it is empty
        // (ucs_memtype_cache_is_empty, src/ucs/memory/memtype_cache.h), so it gets an entry.
        ucx.memtype_cache_update(unknown_region, sizeof(unknown_region), UCS_MEMORY_TYPE_UNKNOWN,
                                 kUnknownSysDevice, 0);
    }
}

}  // namespace gpushm::uct
