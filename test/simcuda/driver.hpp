// SPDX-License-Identifier: BSD-3-Clause
// State of the whole driver: its lock, and whether cuInit was called.
//
// One lock guards every object of the driver. It is held by each entry point and by the engine, and
// let go only while bytes are copied and while somebody waits. Nothing that it guards is ever
// destroyed at process exit, because other threads may still be inside the driver then.
#pragma once

#include "cuda_declarations.hpp"
#include "entry_points.hpp"

#include <mutex>

namespace simcuda {

using Lock = std::unique_lock<std::mutex>;

std::mutex &driver_mutex();

// CUDA_SUCCESS once cuInit succeeded, else CUDA_ERROR_NOT_INITIALIZED: also in a child that was
// forked after cuInit. Takes no lock, as another thread may have held it at the fork.
CUresult driver_state();

}  // namespace simcuda
