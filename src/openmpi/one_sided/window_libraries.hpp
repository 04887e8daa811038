// SPDX-License-Identifier: BSD-3-Clause
// The libraries whose calls are replaced for windows.
#pragma once

#include <string>
#include <vector>

namespace gpushm::openmpi {

/** osc/ucx is in one of them, or its inline functions are. */
inline const std::vector<std::string> &libraries_of_windows() {
    static const std::vector<std::string> names = {"mca_osc_ucx.so", "libmca_common_ucx.so",
                                                   "libopen-pal.so", "libmpi.so", "libopen_mpi.so"};
    return names;
}

}  // namespace gpushm::openmpi
