// SPDX-License-Identifier: BSD-3-Clause
// Which process of a job speaks for all.
#pragma once

#include <cstring>

namespace gpushm::openmpi {

/** Whether the environment names another rank than the first. `find` is getenv or the like. */
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
