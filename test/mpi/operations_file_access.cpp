// SPDX-License-Identifier: BSD-3-Clause
// MPI has the same forms for reading and writing; they differ in the type of the buffer only, which
// is `const void*` where it is written to the file.
#include "operations_file_access.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

namespace gpushm::mpi_test::operations {
namespace {

template <typename Buffer>
using AtOffset = int (*)(MPI_File, MPI_Offset, Buffer, int, MPI_Datatype, MPI_Status *);
template <typename Buffer>
using StartAtOffset = int (*)(MPI_File, MPI_Offset, Buffer, int, MPI_Datatype, MPI_Request *);
template <typename Buffer>
using BeginAtOffset = int (*)(MPI_File, MPI_Offset, Buffer, int, MPI_Datatype);
template <typename Buffer>
using AtPointer = int (*)(MPI_File, Buffer, int, MPI_Datatype, MPI_Status *);
template <typename Buffer>
using StartAtPointer = int (*)(MPI_File, Buffer, int, MPI_Datatype, MPI_Request *);
template <typename Buffer>
using BeginAtPointer = int (*)(MPI_File, Buffer, int, MPI_Datatype);
template <typename Buffer>
using End = int (*)(MPI_File, Buffer, MPI_Status *);

int wait_unless(int code, MPI_Request &request) {
    return code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
}

int seek(const FilePart &part) {
    return MPI_File_seek(part.file, part.offset, MPI_SEEK_SET);
}

template <typename Buffer>
int access(const FilePart &part, AtOffset<Buffer> call) {
    const Items &items = part.items;
    return call(part.file, part.offset, items.address(), items.count(), items.type(),
                MPI_STATUS_IGNORE);
}

template <typename Buffer>
int access(const FilePart &part, StartAtOffset<Buffer> call) {
    const Items &items = part.items;
    MPI_Request request = MPI_REQUEST_NULL;
    return wait_unless(
        call(part.file, part.offset, items.address(), items.count(), items.type(), &request),
        request);
}

// Without what is printed meanwhile: Open MPI prints a line on standard output when it refuses a
// call.
int silently(const std::function<int()> &call) {
    std::fflush(stdout);
    const int output = dup(STDOUT_FILENO);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
    const int code = call();
    std::fflush(stdout);
    dup2(output, STDOUT_FILENO);
    close(output);
    return code;
}

// A file has one operation that was begun; another one is refused, and changes nothing of the
// first.
template <typename Buffer>
int access(const FilePart &part, BeginAtOffset<Buffer> begin, End<Buffer> end) {
    const Items &items = part.items;
    const auto call = [&] {
        return begin(part.file, part.offset, items.address(), items.count(), items.type());
    };
    const int code = call();
    const int again = code == MPI_SUCCESS ? silently(call) : code;
    const int ended =
        code == MPI_SUCCESS ? end(part.file, items.address(), MPI_STATUS_IGNORE) : code;
    return again == MPI_SUCCESS ? MPI_ERR_OTHER : ended;
}

// At a pointer of the file: the one of this rank, which has to be moved, or the shared one.
template <typename Buffer>
int access_here(const FilePart &part, AtPointer<Buffer> call) {
    const Items &items = part.items;
    return call(part.file, items.address(), items.count(), items.type(), MPI_STATUS_IGNORE);
}

template <typename Buffer>
int access_here(const FilePart &part, StartAtPointer<Buffer> call) {
    const Items &items = part.items;
    MPI_Request request = MPI_REQUEST_NULL;
    return wait_unless(call(part.file, items.address(), items.count(), items.type(), &request),
                       request);
}

template <typename Buffer>
int access_here(const FilePart &part, BeginAtPointer<Buffer> begin, End<Buffer> end) {
    const Items &items = part.items;
    const int code = begin(part.file, items.address(), items.count(), items.type());
    return code == MPI_SUCCESS ? end(part.file, items.address(), MPI_STATUS_IGNORE) : code;
}

template <typename... Calls>
int access_moved(const FilePart &part, Calls... calls) {
    const int seek_code = seek(part);
    const int code = access_here(part, calls...);
    return seek_code == MPI_SUCCESS ? code : seek_code;
}

// Without order among the ranks: one after the other.
template <typename Call>
int access_in_turn(const FilePart &part, Call call) {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(part.comm, &rank);
    MPI_Comm_size(part.comm, &size);
    int code = MPI_SUCCESS;
    for (int turn = 0; turn < size; ++turn) {
        if (turn == rank) {
            code = access_here(part, call);
        }
        MPI_Barrier(part.comm);
    }
    return code;
}

std::vector<FileAccess> accesses_at_offset() {
    return {
        {"File_write_at", "File_read_at",
         [](const FilePart &part) { return access<const void *>(part, MPI_File_write_at); },
         [](const FilePart &part) { return access<void *>(part, MPI_File_read_at); }},
        {"File_write_at_all", "File_read_at_all",
         [](const FilePart &part) { return access<const void *>(part, MPI_File_write_at_all); },
         [](const FilePart &part) { return access<void *>(part, MPI_File_read_at_all); }},
        {"File_iwrite_at", "File_iread_at",
         [](const FilePart &part) { return access<const void *>(part, MPI_File_iwrite_at); },
         [](const FilePart &part) { return access<void *>(part, MPI_File_iread_at); }},
        {"File_iwrite_at_all", "File_iread_at_all",
         [](const FilePart &part) { return access<const void *>(part, MPI_File_iwrite_at_all); },
         [](const FilePart &part) { return access<void *>(part, MPI_File_iread_at_all); }},
        {"File_write_at_all_begin", "File_read_at_all_begin",
         [](const FilePart &part) {
             return access<const void *>(part, MPI_File_write_at_all_begin,
                                         MPI_File_write_at_all_end);
         },
         [](const FilePart &part) {
             return access<void *>(part, MPI_File_read_at_all_begin, MPI_File_read_at_all_end);
         }},
    };
}

std::vector<FileAccess> accesses_at_own_pointer() {
    return {
        {"File_write", "File_read",
         [](const FilePart &part) {
             return access_moved<AtPointer<const void *>>(part, MPI_File_write);
         },
         [](const FilePart &part) { return access_moved<AtPointer<void *>>(part, MPI_File_read); }},
        {"File_write_all", "File_read_all",
         [](const FilePart &part) {
             return access_moved<AtPointer<const void *>>(part, MPI_File_write_all);
         },
         [](const FilePart &part) {
             return access_moved<AtPointer<void *>>(part, MPI_File_read_all);
         }},
        {"File_iwrite", "File_iread",
         [](const FilePart &part) {
             return access_moved<StartAtPointer<const void *>>(part, MPI_File_iwrite);
         },
         [](const FilePart &part) {
             return access_moved<StartAtPointer<void *>>(part, MPI_File_iread);
         }},
        {"File_iwrite_all", "File_iread_all",
         [](const FilePart &part) {
             return access_moved<StartAtPointer<const void *>>(part, MPI_File_iwrite_all);
         },
         [](const FilePart &part) {
             return access_moved<StartAtPointer<void *>>(part, MPI_File_iread_all);
         }},
        {"File_write_all_begin", "File_read_all_begin",
         [](const FilePart &part) {
             return access_moved<BeginAtPointer<const void *>, End<const void *>>(
                 part, MPI_File_write_all_begin, MPI_File_write_all_end);
         },
         [](const FilePart &part) {
             return access_moved<BeginAtPointer<void *>, End<void *>>(part, MPI_File_read_all_begin,
                                                                      MPI_File_read_all_end);
         }},
    };
}

std::vector<FileAccess> accesses_at_shared_pointer() {
    return {
        {"File_write_shared", "File_read_shared",
         [](const FilePart &part) {
             return access_in_turn<AtPointer<const void *>>(part, MPI_File_write_shared);
         },
         [](const FilePart &part) {
             return access_in_turn<AtPointer<void *>>(part, MPI_File_read_shared);
         }},
        {"File_iwrite_shared", "File_iread_shared",
         [](const FilePart &part) {
             return access_in_turn<StartAtPointer<const void *>>(part, MPI_File_iwrite_shared);
         },
         [](const FilePart &part) {
             return access_in_turn<StartAtPointer<void *>>(part, MPI_File_iread_shared);
         }},
        {"File_write_ordered", "File_read_ordered",
         [](const FilePart &part) {
             return access_here<const void *>(part, MPI_File_write_ordered);
         },
         [](const FilePart &part) { return access_here<void *>(part, MPI_File_read_ordered); }},
        {"File_write_ordered_begin", "File_read_ordered_begin",
         [](const FilePart &part) {
             return access_here<const void *>(part, MPI_File_write_ordered_begin,
                                              MPI_File_write_ordered_end);
         },
         [](const FilePart &part) {
             return access_here<void *>(part, MPI_File_read_ordered_begin,
                                        MPI_File_read_ordered_end);
         }},
    };
}

#if MPI_VERSION >= 4

template <typename Call>
int start_and_wait(const FilePart &part, Call call) {
    MPI_Request request = MPI_REQUEST_NULL;
    const Items &items = part.items;
    return wait_unless(
        call(part.file, part.offset, items.address(), items.count(), items.type(), &request),
        request);
}

// One of each form.
std::vector<FileAccess> accesses_with_large_counts() {
    return {
        {"File_write_at_all_c", "File_read_at_all_c",
         [](const FilePart &part) {
             return MPI_File_write_at_all_c(part.file, part.offset, part.items.address(),
                                            part.items.count(), part.items.type(),
                                            MPI_STATUS_IGNORE);
         },
         [](const FilePart &part) {
             return MPI_File_read_at_all_c(part.file, part.offset, part.items.address(),
                                           part.items.count(), part.items.type(),
                                           MPI_STATUS_IGNORE);
         }},
        {"File_write_ordered_c", "File_read_ordered_c",
         [](const FilePart &part) {
             return MPI_File_write_ordered_c(part.file, part.items.address(), part.items.count(),
                                             part.items.type(), MPI_STATUS_IGNORE);
         },
         [](const FilePart &part) {
             return MPI_File_read_ordered_c(part.file, part.items.address(), part.items.count(),
                                            part.items.type(), MPI_STATUS_IGNORE);
         }},
        {"File_iwrite_at_c", "File_iread_at_c",
         [](const FilePart &part) { return start_and_wait(part, MPI_File_iwrite_at_c); },
         [](const FilePart &part) { return start_and_wait(part, MPI_File_iread_at_c); }},
        {"File_write_at_all_begin_c", "File_read_at_all_begin_c",
         [](const FilePart &part) {
             const int code =
                 MPI_File_write_at_all_begin_c(part.file, part.offset, part.items.address(),
                                               part.items.count(), part.items.type());
             return code == MPI_SUCCESS ? MPI_File_write_at_all_end(part.file, part.items.address(),
                                                                    MPI_STATUS_IGNORE)
                                        : code;
         },
         [](const FilePart &part) {
             const int code =
                 MPI_File_read_at_all_begin_c(part.file, part.offset, part.items.address(),
                                              part.items.count(), part.items.type());
             return code == MPI_SUCCESS ? MPI_File_read_at_all_end(part.file, part.items.address(),
                                                                   MPI_STATUS_IGNORE)
                                        : code;
         }},
    };
}

#else

std::vector<FileAccess> accesses_with_large_counts() {
    return {};
}

#endif

}  // namespace

std::vector<FileAccess> file_accesses() {
    std::vector<FileAccess> accesses = accesses_at_offset();
    for (const FileAccess &access : accesses_with_large_counts()) {
        accesses.push_back(access);
    }
    for (const FileAccess &access : accesses_at_own_pointer()) {
        accesses.push_back(access);
    }
    for (const FileAccess &access : accesses_at_shared_pointer()) {
        accesses.push_back(access);
    }
    return accesses;
}

FileAccess collective_file_access() {
    return {
        "File_write_all through a view", "File_read_all through a view",
        [](const FilePart &part) { return access_here<const void *>(part, MPI_File_write_all); },
        [](const FilePart &part) { return access_here<void *>(part, MPI_File_read_all); }};
}

}  // namespace gpushm::mpi_test::operations
