// SPDX-License-Identifier: BSD-3-Clause
// MPI's file operations with buffers in GPU memory.
#include "openmpi/file_calls.hpp"

#include "core/log.hpp"
#include "openmpi/gpu_memory.hpp"
#include "openmpi/host_mirror.hpp"
#include "openmpi/mpi_call.hpp"

#include <iterator>
#include <new>
#include <utility>

namespace gpushm::openmpi {
namespace {

using File = void *;
using Datatype = void *;
using Request = void *;
using Offset = long long;  // MPI_Offset

/** MPI_Status of Open MPI (ompi/include/mpi.h.in). */
struct MpiStatus {
    int fields[4];
    size_t bytes;
};

enum class Access { read, write };

/** A function of MPI by its name and what it does. */
struct Operation {
    const char *name;  // without MPI_
    Access access;
};

// ---------------------------------------------------------------- what all have in common

int fail(File file, int code);

/** Runs `with_memory` on host memory that stands for the buffer. */
template <typename Run>
int run_in_host_memory(const Operation &operation, File file, void *buffer, size_t count,
                       Datatype datatype, Run with_memory) {
    try {
        const HostMirror mirror(datatype, count, buffer);
        // A read may end before the last element, and leaves alone what comes after.
        if (!mirror.load(operation.name)) {
            return fail(file, kMpiErrorOther);
        }
        const int result = with_memory(mirror.base());
        const bool stored = operation.access == Access::write || mirror.store(operation.name);
        return stored ? result : fail(file, kMpiErrorOther);
    } catch (const std::bad_alloc &) {
        GPUSHM_LOG(error, "no host memory for MPI_%s of %zu elements in GPU memory: use smaller pieces",
                   operation.name, count);
        return fail(file, kMpiErrorNoMemory);
    }
}

bool concerns_gpu(const void *buffer, size_t count, Datatype datatype) {
    return count > 0 && is_gpu_memory(OpalDatatype(datatype), buffer);
}

struct Requests {
    int (*call_errhandler)(File file, int code);
    int (*start)(int (*query)(void *, MpiStatus *), int (*free)(void *), int (*cancel)(void *, int),
                 void *argument, Request *request);
    int (*complete)(Request request);
};
Requests mpi;

int fail(File file, int code) {
    mpi.call_errhandler(file, code);
    return code;
}

int refuse(const Operation &operation, File file) {
    GPUSHM_LOG(error, "MPI_%s does not take GPU memory: use MPI_File_read_at_all or MPI_File_write_at_all, or a buffer "
               "in host memory", operation.name);
    return fail(file, kMpiErrorUnsupportedOperation);
}

// A request that is complete from the start (MPI 3.1, section 12.2, "Generalized Requests").
int query_request(void *argument, MpiStatus *status) {
    *status = *static_cast<MpiStatus *>(argument);
    return kMpiSuccess;
}
int free_request(void *argument) {
    delete static_cast<MpiStatus *>(argument);
    return kMpiSuccess;
}
int cancel_request(void *, int) { return kMpiSuccess; }

int complete_at_once(const MpiStatus &status, Request *request) {
    auto *kept = new MpiStatus(status);
    const int result = mpi.start(query_request, free_request, cancel_request, kept, request);
    return result == kMpiSuccess ? mpi.complete(*request) : result;
}

// ---------------------------------------------------------------- blocking

constexpr Operation kAtPointer[] = {
    {"File_read", Access::read},         {"File_write", Access::write},
    {"File_read_all", Access::read},     {"File_write_all", Access::write},
    {"File_read_shared", Access::read},  {"File_write_shared", Access::write},
    {"File_read_ordered", Access::read}, {"File_write_ordered", Access::write}};
constexpr Operation kAtOffset[] = {{"File_read_at", Access::read},
                                   {"File_write_at", Access::write},
                                   {"File_read_at_all", Access::read},
                                   {"File_write_at_all", Access::write}};

using PointerCall = int (*)(File, void *, int, Datatype, MpiStatus *);
using OffsetCall = int (*)(File, Offset, void *, int, Datatype, MpiStatus *);
PointerCall pointer_calls[std::size(kAtPointer)];
OffsetCall offset_calls[std::size(kAtOffset)];

template <size_t Index>
int at_pointer(File file, void *buffer, int count, Datatype datatype, MpiStatus *status) {
    const PointerCall original = pointer_calls[Index];
    if (count <= 0 || !concerns_gpu(buffer, static_cast<size_t>(count), datatype)) {
        return original(file, buffer, count, datatype, status);
    }
    return run_in_host_memory(kAtPointer[Index], file, buffer, static_cast<size_t>(count), datatype,
                              [&](void *memory) {
                                  return original(file, memory, count, datatype, status);
                              });
}

template <size_t Index>
int at_offset(File file, Offset offset, void *buffer, int count, Datatype datatype,
              MpiStatus *status) {
    const OffsetCall original = offset_calls[Index];
    if (count <= 0 || !concerns_gpu(buffer, static_cast<size_t>(count), datatype)) {
        return original(file, offset, buffer, count, datatype, status);
    }
    return run_in_host_memory(kAtOffset[Index], file, buffer, static_cast<size_t>(count), datatype,
                              [&](void *memory) {
                                  return original(file, offset, memory, count, datatype, status);
                              });
}

// ---------------------------------------------------------------- nonblocking

/** With the blocking operation that does the same, an index of the lists above; what is collective has none: a
 *  rank may do something else before it lets the others go on. */
struct NonblockingOperation {
    Operation operation;
    int blocking;
};
constexpr int kNone = -1;
constexpr NonblockingOperation kStartAtPointer[] = {
    {{"File_iread", Access::read}, 0},         {{"File_iwrite", Access::write}, 1},
    {{"File_iread_shared", Access::read}, 4},  {{"File_iwrite_shared", Access::write}, 5},
    {{"File_iread_all", Access::read}, kNone}, {{"File_iwrite_all", Access::write}, kNone}};
constexpr NonblockingOperation kStartAtOffset[] = {
    {{"File_iread_at", Access::read}, 0},
    {{"File_iwrite_at", Access::write}, 1},
    {{"File_iread_at_all", Access::read}, kNone},
    {{"File_iwrite_at_all", Access::write}, kNone}};

using StartPointerCall = int (*)(File, void *, int, Datatype, Request *);
using StartOffsetCall = int (*)(File, Offset, void *, int, Datatype, Request *);
StartPointerCall start_pointer_calls[std::size(kStartAtPointer)];
StartOffsetCall start_offset_calls[std::size(kStartAtOffset)];

template <size_t Index>
int start_at_pointer(File file, void *buffer, int count, Datatype datatype, Request *request) {
    constexpr NonblockingOperation kThis = kStartAtPointer[Index];
    if (count <= 0 || !concerns_gpu(buffer, static_cast<size_t>(count), datatype)) {
        return start_pointer_calls[Index](file, buffer, count, datatype, request);
    }
    if constexpr (kThis.blocking == kNone) {
        return refuse(kThis.operation, file);
    } else {
        MpiStatus status = {};
        const int result = at_pointer<kThis.blocking>(file, buffer, count, datatype, &status);
        return result == kMpiSuccess ? complete_at_once(status, request) : result;
    }
}

template <size_t Index>
int start_at_offset(File file, Offset offset, void *buffer, int count, Datatype datatype,
                    Request *request) {
    constexpr NonblockingOperation kThis = kStartAtOffset[Index];
    if (count <= 0 || !concerns_gpu(buffer, static_cast<size_t>(count), datatype)) {
        return start_offset_calls[Index](file, offset, buffer, count, datatype, request);
    }
    if constexpr (kThis.blocking == kNone) {
        return refuse(kThis.operation, file);
    } else {
        MpiStatus status = {};
        const int result = at_offset<kThis.blocking>(file, offset, buffer, count, datatype, &status);
        return result == kMpiSuccess ? complete_at_once(status, request) : result;
    }
}

// ---------------------------------------------------------------- split collective

constexpr Operation kBeginAtPointer[] = {{"File_read_all_begin", Access::read},
                                         {"File_write_all_begin", Access::write},
                                         {"File_read_ordered_begin", Access::read},
                                         {"File_write_ordered_begin", Access::write}};
constexpr Operation kBeginAtOffset[] = {{"File_read_at_all_begin", Access::read},
                                        {"File_write_at_all_begin", Access::write}};

using BeginPointerCall = int (*)(File, void *, int, Datatype);
using BeginOffsetCall = int (*)(File, Offset, void *, int, Datatype);
BeginPointerCall begin_pointer_calls[std::size(kBeginAtPointer)];
BeginOffsetCall begin_offset_calls[std::size(kBeginAtOffset)];

template <size_t Index>
int begin_at_pointer(File file, void *buffer, int count, Datatype datatype) {
    return count > 0 && concerns_gpu(buffer, static_cast<size_t>(count), datatype)
               ? refuse(kBeginAtPointer[Index], file)
               : begin_pointer_calls[Index](file, buffer, count, datatype);
}

template <size_t Index>
int begin_at_offset(File file, Offset offset, void *buffer, int count, Datatype datatype) {
    return count > 0 && concerns_gpu(buffer, static_cast<size_t>(count), datatype)
               ? refuse(kBeginAtOffset[Index], file)
               : begin_offset_calls[Index](file, offset, buffer, count, datatype);
}

// ---------------------------------------------------------------- redirection

struct Target {
    const OpenMpiLibrary &library;
    CallRedirection *redirection;

    template <typename Function>
    void operator()(const char *name, Function *original, Function replacement) const {
        redirect_mpi_call(library, redirection, name, original, replacement);
    }
};

template <size_t... Index>
void redirect_pointer_calls(const Target &redirect, std::index_sequence<Index...>) {
    (redirect(kAtPointer[Index].name, &pointer_calls[Index], at_pointer<Index>), ...);
}
template <size_t... Index>
void redirect_offset_calls(const Target &redirect, std::index_sequence<Index...>) {
    (redirect(kAtOffset[Index].name, &offset_calls[Index], at_offset<Index>), ...);
}
template <size_t... Index>
void redirect_start_pointer_calls(const Target &redirect, std::index_sequence<Index...>) {
    (redirect(kStartAtPointer[Index].operation.name, &start_pointer_calls[Index],
              start_at_pointer<Index>), ...);
}
template <size_t... Index>
void redirect_start_offset_calls(const Target &redirect, std::index_sequence<Index...>) {
    (redirect(kStartAtOffset[Index].operation.name, &start_offset_calls[Index],
              start_at_offset<Index>), ...);
}
template <size_t... Index>
void redirect_begin_pointer_calls(const Target &redirect, std::index_sequence<Index...>) {
    (redirect(kBeginAtPointer[Index].name, &begin_pointer_calls[Index], begin_at_pointer<Index>), ...);
}
template <size_t... Index>
void redirect_begin_offset_calls(const Target &redirect, std::index_sequence<Index...>) {
    (redirect(kBeginAtOffset[Index].name, &begin_offset_calls[Index], begin_at_offset<Index>), ...);
}

}  // namespace

void redirect_file_calls(const OpenMpiLibrary &library, CallRedirection *redirection) {
    if (!library.mpi("PMPI_File_call_errhandler", &mpi.call_errhandler) ||
        !library.mpi("PMPI_Grequest_start", &mpi.start) ||
        !library.mpi("PMPI_Grequest_complete", &mpi.complete)) {
        return;
    }
    const Target target = {library, redirection};
    redirect_pointer_calls(target, std::make_index_sequence<std::size(kAtPointer)>());
    redirect_offset_calls(target, std::make_index_sequence<std::size(kAtOffset)>());
    redirect_start_pointer_calls(target, std::make_index_sequence<std::size(kStartAtPointer)>());
    redirect_start_offset_calls(target, std::make_index_sequence<std::size(kStartAtOffset)>());
    redirect_begin_pointer_calls(target, std::make_index_sequence<std::size(kBeginAtPointer)>());
    redirect_begin_offset_calls(target, std::make_index_sequence<std::size(kBeginAtOffset)>());
}

}  // namespace gpushm::openmpi
