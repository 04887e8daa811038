// SPDX-License-Identifier: BSD-3-Clause
// Opens the interface that reaches other processes of the node, with its operations (iface_ of
// uct_iface_ops_t).
#pragma once

#include <uct/api/uct.h>

namespace gpushm::uct {

ucs_status_t open_shared_memory_interface(uct_md_h md, uct_worker_h worker,
                                          const uct_iface_params_t *params,
                                          const uct_iface_config_t *config, uct_iface_h *iface);

}  // namespace gpushm::uct
