// SPDX-License-Identifier: BSD-3-Clause
// The interface by which UCP copies between the memory kinds of one process.
#pragma once

#include <uct/api/uct.h>

namespace gpushm::uct {

ucs_status_t open_memory_copy_interface(uct_md_h md, uct_worker_h worker,
                                        const uct_iface_params_t *params,
                                        const uct_iface_config_t *config, uct_iface_h *iface);

}  // namespace gpushm::uct
