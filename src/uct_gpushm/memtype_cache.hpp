// SPDX-License-Identifier: BSD-3-Clause
// UCX's memory-type cache, and why it must not be believed.
#pragma once

namespace gpushm::uct {

/** A UCX built without CUDA installs no allocation hooks; its memory-type cache therefore stays
 * empty, and an empty cache means "host memory" to UCP, so that device pointers would reach memcpy.
 * Makes UCP ask our memory domain for every buffer instead, in this process, for all of UCX. Call
 * it when the domain that detects memory types is opened; again does no harm. */
void disable_memtype_cache();

}  // namespace gpushm::uct
