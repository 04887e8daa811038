// SPDX-License-Identifier: BSD-3-Clause
// Which process of a job logs a line that concerns the whole job.
#pragma once

#include <cstring>

namespace gpushm::openmpi {

/** Whether the environment names a rank other than the first. `find` has the contract of getenv. */
template <typename Find>
bool is_later_rank(const Find &find) {
    for (const char *name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
        const char *rank = find(name);
        if (rank != nullptr && std::strcmp(rank, "0") != 0) {
            return true;
        }
    }
    return false;
}

}  // namespace gpushm::openmpi
