// SPDX-License-Identifier: BSD-3-Clause
// MPI's file operations with buffers in GPU memory.
#include "openmpi/file_calls.hpp"

#include "core/log.hpp"
#include "openmpi/gpu_memory.hpp"
#include "openmpi/host_mirror.hpp"
#include "openmpi/mpi_call.hpp"

#include <iterator>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>
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

int fail_for_memory(const Operation &operation, File file, size_t count) {
    GPUSHM_LOG(error, "no host memory for MPI_%s of %zu elements in GPU memory: use smaller pieces",
               operation.name, count);
    return fail(file, kMpiErrorNoMemory);
}

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
        return fail_for_memory(operation, file, count);
    }
}

bool concerns_gpu(const void *buffer, int count, Datatype datatype) {
    return count > 0 && is_gpu_memory(OpalDatatype(datatype), buffer);
}

struct Requests {
    int (*call_errhandler)(File file, int code);
    int (*start)(int (*query)(void *, MpiStatus *), int (*free)(void *), int (*cancel)(void *, int),
                 void *argument, Request *request);
    int (*complete)(Request request);
    int (*wait)(Request *request, MpiStatus *status);
};
Requests mpi;

int fail(File file, int code) {
    mpi.call_errhandler(file, code);
    return code;
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
    if (!concerns_gpu(buffer, count, datatype)) {
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
    if (!concerns_gpu(buffer, count, datatype)) {
        return original(file, offset, buffer, count, datatype, status);
    }
    return run_in_host_memory(kAtOffset[Index], file, buffer, static_cast<size_t>(count), datatype,
                              [&](void *memory) {
                                  return original(file, offset, memory, count, datatype, status);
                              });
}

// ---------------------------------------------------------------- nonblocking

// They end before they return. Open MPI's own collective ones do what each rank asks for without waiting for the
// others (common_ompio_file_read.c, mca_common_ompio_file_iread_all), so nobody waits for a rank that waits here.
constexpr Operation kStartAtPointer[] = {
    {"File_iread", Access::read},        {"File_iwrite", Access::write},
    {"File_iread_all", Access::read},    {"File_iwrite_all", Access::write},
    {"File_iread_shared", Access::read}, {"File_iwrite_shared", Access::write}};
constexpr Operation kStartAtOffset[] = {{"File_iread_at", Access::read},
                                        {"File_iwrite_at", Access::write},
                                        {"File_iread_at_all", Access::read},
                                        {"File_iwrite_at_all", Access::write}};

using StartPointerCall = int (*)(File, void *, int, Datatype, Request *);
using StartOffsetCall = int (*)(File, Offset, void *, int, Datatype, Request *);
StartPointerCall start_pointer_calls[std::size(kStartAtPointer)];
StartOffsetCall start_offset_calls[std::size(kStartAtOffset)];

/** `start` starts the operation on the memory that it gets. */
template <typename Start>
int run_to_its_end(const Operation &operation, File file, void *buffer, int count, Datatype datatype,
                   Request *request, Start start) {
    MpiStatus status = {};
    const int result = run_in_host_memory(operation, file, buffer, static_cast<size_t>(count),
                                          datatype, [&](void *memory) {
                                              Request inner = nullptr;
                                              const int started = start(memory, &inner);
                                              return started == kMpiSuccess
                                                         ? mpi.wait(&inner, &status)
                                                         : started;
                                          });
    return result == kMpiSuccess ? complete_at_once(status, request) : result;
}

template <size_t Index>
int start_at_pointer(File file, void *buffer, int count, Datatype datatype, Request *request) {
    const StartPointerCall original = start_pointer_calls[Index];
    if (!concerns_gpu(buffer, count, datatype)) {
        return original(file, buffer, count, datatype, request);
    }
    return run_to_its_end(kStartAtPointer[Index], file, buffer, count, datatype, request,
                          [&](void *memory, Request *inner) {
                              return original(file, memory, count, datatype, inner);
                          });
}

template <size_t Index>
int start_at_offset(File file, Offset offset, void *buffer, int count, Datatype datatype,
                    Request *request) {
    const StartOffsetCall original = start_offset_calls[Index];
    if (!concerns_gpu(buffer, count, datatype)) {
        return original(file, offset, buffer, count, datatype, request);
    }
    return run_to_its_end(kStartAtOffset[Index], file, buffer, count, datatype, request,
                          [&](void *memory, Request *inner) {
                              return original(file, offset, memory, count, datatype, inner);
                          });
}

// ---------------------------------------------------------------- split collective

constexpr Operation kBeginAtPointer[] = {{"File_read_all_begin", Access::read},
                                         {"File_write_all_begin", Access::write},
                                         {"File_read_ordered_begin", Access::read},
                                         {"File_write_ordered_begin", Access::write}};
constexpr Operation kBeginAtOffset[] = {{"File_read_at_all_begin", Access::read},
                                        {"File_write_at_all_begin", Access::write}};
constexpr Operation kEnd[] = {
    {"File_read_all_end", Access::read},     {"File_write_all_end", Access::write},
    {"File_read_ordered_end", Access::read}, {"File_write_ordered_end", Access::write},
    {"File_read_at_all_end", Access::read},  {"File_write_at_all_end", Access::write}};

using BeginPointerCall = int (*)(File, void *, int, Datatype);
using BeginOffsetCall = int (*)(File, Offset, void *, int, Datatype);
using EndCall = int (*)(File, void *, MpiStatus *);
BeginPointerCall begin_pointer_calls[std::size(kBeginAtPointer)];
BeginOffsetCall begin_offset_calls[std::size(kBeginAtOffset)];
EndCall end_calls[std::size(kEnd)];

/** Mirrors of operations that have begun; a file has one at a time (MPI 3.1, section 13.4.5). */
struct Begun {
    std::mutex mutex;
    std::unordered_map<File, HostMirror> mirrors;
};

Begun &begun() {
    static Begun *const instance = new Begun;
    return *instance;
}

template <typename Begin>
int begin_in_host_memory(const Operation &operation, File file, void *buffer, int count,
                         Datatype datatype, Begin begin) {
    try {
        HostMirror mirror(datatype, static_cast<size_t>(count), buffer);
        if (!mirror.load(operation.name)) {
            return fail(file, kMpiErrorOther);
        }
        void *const memory = mirror.base();
        {
            const std::lock_guard<std::mutex> lock(begun().mutex);
            begun().mirrors.insert_or_assign(file, std::move(mirror));
        }
        return begin(memory);
    } catch (const std::bad_alloc &) {
        return fail_for_memory(operation, file, static_cast<size_t>(count));
    }
}

template <size_t Index>
int begin_at_pointer(File file, void *buffer, int count, Datatype datatype) {
    const BeginPointerCall original = begin_pointer_calls[Index];
    if (!concerns_gpu(buffer, count, datatype)) {
        return original(file, buffer, count, datatype);
    }
    return begin_in_host_memory(kBeginAtPointer[Index], file, buffer, count, datatype,
                                [&](void *memory) {
                                    return original(file, memory, count, datatype);
                                });
}

template <size_t Index>
int begin_at_offset(File file, Offset offset, void *buffer, int count, Datatype datatype) {
    const BeginOffsetCall original = begin_offset_calls[Index];
    if (!concerns_gpu(buffer, count, datatype)) {
        return original(file, offset, buffer, count, datatype);
    }
    return begin_in_host_memory(kBeginAtOffset[Index], file, buffer, count, datatype,
                                [&](void *memory) {
                                    return original(file, offset, memory, count, datatype);
                                });
}

template <size_t Index>
int end(File file, void *buffer, MpiStatus *status) {
    std::optional<HostMirror> mirror;
    {
        const std::lock_guard<std::mutex> lock(begun().mutex);
        const auto found = begun().mirrors.find(file);
        if (found != begun().mirrors.end()) {
            mirror.emplace(std::move(found->second));
            begun().mirrors.erase(found);
        }
    }
    const int result = end_calls[Index](file, mirror ? mirror->base() : buffer, status);
    const bool reads = kEnd[Index].access == Access::read;
    return mirror && reads && !mirror->store(kEnd[Index].name) ? fail(file, kMpiErrorOther) : result;
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
    (redirect(kStartAtPointer[Index].name, &start_pointer_calls[Index],
              start_at_pointer<Index>), ...);
}
template <size_t... Index>
void redirect_start_offset_calls(const Target &redirect, std::index_sequence<Index...>) {
    (redirect(kStartAtOffset[Index].name, &start_offset_calls[Index],
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

template <size_t... Index>
void redirect_end_calls(const Target &redirect, std::index_sequence<Index...>) {
    (redirect(kEnd[Index].name, &end_calls[Index], end<Index>), ...);
}

}  // namespace

void redirect_file_calls(const OpenMpiLibrary &library, CallRedirection *redirection) {
    if (!library.mpi("PMPI_File_call_errhandler", &mpi.call_errhandler) ||
        !library.mpi("PMPI_Grequest_start", &mpi.start) ||
        !library.mpi("PMPI_Grequest_complete", &mpi.complete) ||
        !library.mpi("PMPI_Wait", &mpi.wait)) {
        return;
    }
    const Target target = {library, redirection};
    redirect_pointer_calls(target, std::make_index_sequence<std::size(kAtPointer)>());
    redirect_offset_calls(target, std::make_index_sequence<std::size(kAtOffset)>());
    redirect_start_pointer_calls(target, std::make_index_sequence<std::size(kStartAtPointer)>());
    redirect_start_offset_calls(target, std::make_index_sequence<std::size(kStartAtOffset)>());
    redirect_begin_pointer_calls(target, std::make_index_sequence<std::size(kBeginAtPointer)>());
    redirect_begin_offset_calls(target, std::make_index_sequence<std::size(kBeginAtOffset)>());
    redirect_end_calls(target, std::make_index_sequence<std::size(kEnd)>());
}

}  // namespace gpushm::openmpi
