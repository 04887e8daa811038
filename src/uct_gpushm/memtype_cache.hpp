// SPDX-License-Identifier: BSD-3-Clause
// UCX's memory-type cache, and what it must not be believed.
#pragma once

namespace gpushm::uct {

/** A UCX built without CUDA installs no allocation hooks; its memory-type cache therefore stays empty,
 *  and an empty cache means "host memory" to UCP, so that device pointers would reach memcpy. Makes
 *  UCP ask our memory domain for every buffer instead, in this process, for all of UCX. Call it when
 *  the domain that detects memory types is opened; again does no harm. */
void disable_memtype_cache();

/** A UCX with CUDA takes whatever is mapped without access rights when its cache is made for memory that may be a
 *  GPU's: gaps of libraries, guard pages (ucm_cudamem_scan_regions_cb, src/ucm/cuda/cudamem.c). So the cache is
 *  never empty, and UCP looks into it, under its lock, for each message that a process without GPU memory sends
 *  (ucs_memtype_cache_is_empty). Makes the cache, and takes out of it what is none. Call it when libucm watches
 *  CUDA; again does no harm. */
void forget_guard_mappings();

}  // namespace gpushm::uct
