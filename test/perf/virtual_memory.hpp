// SPDX-License-Identifier: BSD-3-Clause
// Device memory of the driver's virtual memory management (cuMemCreate, cuMemMap).
#pragma once

#include "driver.hpp"

#include <cstddef>

namespace gpushm::perf {

/** On the device that is current. `exportable`: other processes may map it, by a file descriptor.
 * Throws std::runtime_error when the driver fails or has no such memory. */
CUdeviceptr allocate_virtual_memory(const Driver &driver, size_t bytes, bool exportable);

/** `bytes` as when it was allocated. */
void free_virtual_memory(const Driver &driver, CUdeviceptr address, size_t bytes);

}  // namespace gpushm::perf
