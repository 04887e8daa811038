// SPDX-License-Identifier: BSD-3-Clause
// What the user has set for Open MPI: UCX_GPUSHM_OPENMPI, and the sizes of UCX_GPUSHM_OPENMPI_*.
#pragma once

#include <strings.h>

#include <cstddef>
#include <cstdint>

namespace gpushm::openmpi {

/** Whether `value` of UCX_GPUSHM_OPENMPI switches gpushm's part of Open MPI off; null: not set. */
inline bool switches_off(const char *value) {
    return value != nullptr && (strcasecmp(value, "n") == 0 || strcasecmp(value, "no") == 0 ||
                                strcasecmp(value, "0") == 0 || strcasecmp(value, "off") == 0);
}

/** Sizes in bytes, by which one of two ways is chosen. */
struct Limits {
    /** UCX_GPUSHM_OPENMPI_STAGING: a message of a derived datatype in device memory is packed there
     * from this size on. kUnlimited: never. */
    size_t staging = 8u << 10;
    /** UCX_GPUSHM_OPENMPI_HOST_COLLECTIVES: collective operations on GPU buffers run in host memory
     * up to a share of this size (small_collectives.hpp). kUnlimited: reductions also keep their
     * temporary data in host memory. */
    size_t host_collectives = 64u << 10;
    /** UCX_GPUSHM_OPENMPI_BUFFERED: MPI_Send of device memory may wait for the receive from this
     * size on; below, it returns although no receive is posted. */
    size_t buffered = 2u << 10;
};
constexpr size_t kUnlimited = SIZE_MAX;

/** Those of the process. Thread safe; each size for itself. */
Limits limits();
void set_limits(const Limits &limits);

}  // namespace gpushm::openmpi
