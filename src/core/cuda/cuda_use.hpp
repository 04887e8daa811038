// SPDX-License-Identifier: BSD-3-Clause
// Whether the program computes on GPUs.
#pragma once

namespace gpushm {

/** Whether a CUDA runtime is loaded as a library of its own, or the process has a CUDA context: the
 * current one, or the primary one of a device. Makes no context, and does not initialise CUDA.
 * Takes microseconds. Thread safe. */
bool process_uses_cuda();

}  // namespace gpushm
