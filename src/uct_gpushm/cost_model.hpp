// SPDX-License-Identifier: BSD-3-Clause
// What operations between processes cost, as UCP's choice of protocols needs it.
#pragma once

#include "uct_gpushm/abi/abi.hpp"

namespace gpushm::uct {

/** Corrects UCX's estimate, which knows neither that a "zero-copy" message is copied into shared memory
 *  nor what a GPU costs. Proto v2 of UCX (default from 1.16 on) chooses by it. */
void estimate_shared_memory_cost(abi::PerfEstimate &estimate);

/** The same for the first generation of protocols, which asks for no estimates: seconds that a registration is said
 *  to take, so that UCP has host memory of up to a slot's size copied. */
double registration_overhead();

}  // namespace gpushm::uct
