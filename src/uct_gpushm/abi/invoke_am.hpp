// SPDX-License-Identifier: BSD-3-Clause
// The handlers of active messages: inline, since each message calls one.
#pragma once

#include "uct_gpushm/abi/abi.hpp"
#include "uct_gpushm/abi/layout.hpp"

namespace gpushm::abi {

/** Hands a received active message to its handler, as uct_iface_invoke_am of UCX
 *  (src/uct/base/uct_iface.h) does. */
inline ucs_status_t invoke_am(Iface *iface, uint8_t id, void *data, size_t length, unsigned flags) {
    const size_t handler = kBaseIfaceAm + id * kAmHandlerSize;
    const auto callback = load<uct_am_callback_t>(iface, handler);
    return callback(load<void *>(iface, handler + kAmHandlerArgument), data, length, flags);
}

}  // namespace gpushm::abi
