// SPDX-License-Identifier: BSD-3-Clause
// The variable that switches off what gpushm does in Open MPI.
#pragma once

#include <strings.h>

namespace gpushm::openmpi {

/** Whether `value` of UCX_GPUSHM_OPENMPI does so; null: it is not set. */
inline bool switches_off(const char *value) {
    return value != nullptr && (strcasecmp(value, "n") == 0 || strcasecmp(value, "no") == 0 ||
                                strcasecmp(value, "0") == 0 || strcasecmp(value, "off") == 0);
}

}  // namespace gpushm::openmpi
