// SPDX-License-Identifier: BSD-3-Clause
// UCX's memory-type cache, and why it must not be believed.
#pragma once

namespace gpushm::uct {

/** Has UCX make its memory-type cache now, which stays empty in a UCX built without CUDA. Good as long as the process
 *  has no GPU memory: an empty cache means "host memory" to UCP, which then asks nobody, and for short messages does
 *  not even look (ucs_memtype_cache_is_empty, src/ucs/memory/memtype_cache.h). False: there is none (UCX_MEMTYPE_CACHE). */
bool use_empty_memtype_cache();

/** A UCX built without CUDA installs no allocation hooks; its memory-type cache therefore stays empty,
 *  and an empty cache means "host memory" to UCP, so that device pointers would reach memcpy. Makes
 *  UCP ask our memory domain for every buffer instead, in this process, for all of UCX. Call it before
 *  the process has GPU memory; again does no harm. */
void disable_memtype_cache();

}  // namespace gpushm::uct
