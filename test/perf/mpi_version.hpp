// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mpi.h>

#include <string>

namespace gpushm::perf {

/** E.g. "Open MPI v4.1.6". */
inline std::string mpi_version() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(text, &length);
    const std::string whole(text, static_cast<size_t>(length));
    return whole.substr(0, whole.find(','));
}

}  // namespace gpushm::perf
