// SPDX-License-Identifier: BSD-3-Clause
// A line in UCX's log for each active message.
#pragma once

#include "uct_gpushm/abi/abi.hpp"

namespace gpushm::abi {

void trace_received_am(Iface *iface, uint8_t id, const void *data, size_t length);

}  // namespace gpushm::abi
