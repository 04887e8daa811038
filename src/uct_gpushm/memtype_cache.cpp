// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/memtype_cache.hpp"

#include "core/guard_mapping.hpp"
#include "core/log.hpp"
#include "uct_gpushm/abi/abi.hpp"

#include <ucs/memory/memory_type.h>

#include <cstddef>
#include <cstring>

namespace gpushm::uct {
namespace {

constexpr int kUnknownSysDevice = 0xff;  // UCS_SYS_DEVICE_ID_UNKNOWN
constexpr size_t kPage = 4096;

// A region that is nobody's buffer.
alignas(kPage) unsigned char unknown_region[kPage];

}  // namespace

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

void forget_guard_mappings() {
    const abi::Symbols &ucx = abi::symbols();
    if (ucx.memtype_cache_lookup == nullptr || ucx.memtype_cache_remove == nullptr) {
        return;
    }
    // Makes it. What is found is a ucs_memory_info_t, of 32 bytes in UCX 1.22.
    alignas(std::max_align_t) unsigned char found[128];
    ucx.memtype_cache_lookup(unknown_region, 1, found);
    if (*ucx.memtype_cache_global_instance == nullptr) {
        return;  // UCX_MEMTYPE_CACHE=n
    }
    size_t left = 0;
    for_each_mapping([&](const MemoryMapping &mapping) {
        const size_t guard = guard_bytes(mapping);
        if (guard != 0) {
            ucx.memtype_cache_remove(reinterpret_cast<const void *>(mapping.begin), guard);
        }
        const bool taken = !mapping.is_accessible() || strncmp(mapping.path, "/dev/nvidia", 11) == 0;
        left += taken && guard != mapping.end - mapping.begin;
        return true;
    });
    if (left != 0) {
        GPUSHM_LOG(debug, "%zu mappings may be GPU memory: UCX looks for each message into its cache "
                   "of memory types", left);
    }
}

}  // namespace gpushm::uct
