// SPDX-License-Identifier: BSD-3-Clause
// Turns UCX's memory-type cache off.
#pragma once

namespace gpushm::uct {

/** Makes UCP ask gpushm's memory domain about every buffer, for all of UCX in this process. A UCX
 * built without CUDA hooks no allocations of GPU memory, so its cache stays empty; UCP takes that
 * for "host memory", and device pointers would reach memcpy. Call it when the domain that detects
 * memory types is opened. Later calls do no harm. */
void disable_memtype_cache();

}  // namespace gpushm::uct
