// SPDX-License-Identifier: BSD-3-Clause
// Modules and their functions.
#pragma once

namespace simcuda {

struct Context;

void destroy_modules(const Context &context);

}  // namespace simcuda
