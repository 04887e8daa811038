// SPDX-License-Identifier: BSD-3-Clause
// The operations of UCX's endpoints (ep_ of uct_iface_ops_t) of the shared-memory interface.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>

namespace gpushm::uct {

constexpr size_t kMaxHeader = 1024;  // bytes, of a zero-copy active message

/** Sets all ep_ functions. */
void set_endpoint_ops(uct_iface_ops_t &ops);

}  // namespace gpushm::uct
