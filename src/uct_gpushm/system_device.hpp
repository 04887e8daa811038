// SPDX-License-Identifier: BSD-3-Clause
// The number by which UCX knows a GPU: it finds the network devices next to it by that.
#pragma once

#include "core/memory/memory_info.hpp"
#include "uct_gpushm/abi/abi.hpp"

namespace gpushm::uct {

/** That of the GPU on which device memory lies; UCS_SYS_DEVICE_ID_UNKNOWN for other memory: managed
 * memory moves. The driver is asked once for each GPU. Thread safe. */
ucs_sys_device_t system_device_of(const MemoryInfo &info);

}  // namespace gpushm::uct
