// SPDX-License-Identifier: BSD-3-Clause
// UCX's number of a GPU, with which it finds the network devices next to the GPU.
#pragma once

#include "core/memory/memory_info.hpp"
#include "uct_gpushm/abi/abi.hpp"

namespace gpushm::uct {

/** The number of the GPU that has the device memory. UCS_SYS_DEVICE_ID_UNKNOWN for other memory;
 * managed memory moves between devices. Asks the driver once for each GPU. Thread safe. */
ucs_sys_device_t system_device_of(const MemoryInfo &info);

}  // namespace gpushm::uct
