// SPDX-License-Identifier: BSD-3-Clause
// The ways in which MPI reads and writes files.
#pragma once

#include "operations_layout.hpp"

#include <mpi.h>

#include <functional>
#include <vector>

namespace gpushm::mpi_test::operations {

// What one rank of a group reads or writes.
struct FilePart {
    MPI_File file;
    MPI_Comm comm;
    MPI_Offset offset;  // in the view of this rank
    Items items;
};

// Both return the first error code that is not MPI_SUCCESS. All ranks take part, and their parts
// follow each other in the file.
struct FileAccess {
    const char *write_name;
    const char *read_name;
    std::function<int(const FilePart &)> write;
    std::function<int(const FilePart &)> read;
};

std::vector<FileAccess> file_accesses();

// Collective access from the start of the view, for views that make the parts.
FileAccess collective_file_access();

}  // namespace gpushm::mpi_test::operations
