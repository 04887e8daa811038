// SPDX-License-Identifier: BSD-3-Clause
#include "per_thread_function.hpp"

SIMCUDA_PER_THREAD_FUNCTIONS(SIMCUDA_PER_THREAD_FUNCTION)
