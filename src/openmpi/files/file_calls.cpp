// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/files/file_calls.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "openmpi/binding/gpu_memory.hpp"
#include "openmpi/datatypes/host_mirror.hpp"

#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace gpushm::openmpi {
namespace {

using File = void *;
using Datatype = void *;
using Request = void *;
using Offset = long long;  // MPI_Offset
using Large = ptrdiff_t;   // MPI_Count

/** MPI_Status of Open MPI (ompi/include/mpi.h.in). */
struct MpiStatus {
    int fields[4];
    size_t bytes;
};

/** Whether a function of MPI, by its name without MPI_, fills the buffer. */
bool reads(const char *operation) {
    return strstr(operation, "read") != nullptr;
}

// ---------------------------------------------------------------- common to all operations

int fail(File file, int code);

int fail_for_memory(const char *operation, File file, size_t count) {
    GPUSHM_LOG(error,
               "cannot allocate host memory for MPI_%s of %zu elements in GPU memory: use fewer "
               "elements at a time",
               operation, count);
    return fail(file, kMpiErrorNoMemory);
}

/** Runs `with_memory` on a copy of the buffer in host memory. */
template <typename Run>
int run_in_host_memory(const char *operation, File file, void *buffer, size_t count,
                       Datatype datatype, Run with_memory) {
    const auto run = [&] {
        const HostMirror mirror(datatype, count, buffer);
        // Loaded for a read as well: it may end before the last element and leave the others as
        // they are.
        if (!mirror.load(operation)) {
            return fail(file, kMpiErrorOther);
        }
        const int result = with_memory(mirror.base());
        const bool stored = !reads(operation) || mirror.store(operation);
        return stored ? result : fail(file, kMpiErrorOther);
    };
    return unless_short(run, [&] { return fail_for_memory(operation, file, count); });
}

bool concerns_gpu(const void *buffer, Large count, Datatype datatype) {
    const OpalDatatype type(datatype);
    return count > 0 && type.is_committed() && is_gpu_memory(type, buffer);
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
int cancel_request(void *, int) {
    return kMpiSuccess;
}

int complete_at_once(std::unique_ptr<MpiStatus> status, Request *request) {
    const int result =
        mpi.start(query_request, free_request, cancel_request, status.get(), request);
    if (result != kMpiSuccess) {
        return result;
    }
    static_cast<void>(status.release());  // free_request() deletes it
    return mpi.complete(*request);
}

// ---------------------------------------------------------------- blocking

constexpr const char *kAtPointer[] = {"File_read",         "File_write",        "File_read_all",
                                      "File_write_all",    "File_read_shared",  "File_write_shared",
                                      "File_read_ordered", "File_write_ordered"};
constexpr const char *kAtOffset[] = {"File_read_at", "File_write_at", "File_read_at_all",
                                     "File_write_at_all"};

/** Replaces the operation kTable[kIndex] of MPI. `Place` is nothing, or an Offset. */
template <const auto &kTable, size_t kIndex, typename Count, typename... Place>
struct Blocking {
    static int call(File file, Place... place, void *buffer, Count count, Datatype datatype,
                    MpiStatus *status) {
        const auto run = [&](void *memory) {
            return replaced_by<&Blocking::call>(file, place..., memory, count, datatype, status);
        };
        return concerns_gpu(buffer, count, datatype)
                   ? run_in_host_memory(kTable[kIndex], file, buffer, static_cast<size_t>(count),
                                        datatype, run)
                   : run(buffer);
    }
};

// ---------------------------------------------------------------- nonblocking

// Nonblocking operations on GPU memory complete before they return. Open MPI's collective ones
// serve each rank without waiting for the others (common_ompio_file_read.c,
// mca_common_ompio_file_iread_all), so no rank waits for a rank that waits here.
constexpr const char *kStartAtPointer[] = {"File_iread",        "File_iwrite",
                                           "File_iread_all",    "File_iwrite_all",
                                           "File_iread_shared", "File_iwrite_shared"};
constexpr const char *kStartAtOffset[] = {"File_iread_at", "File_iwrite_at", "File_iread_at_all",
                                          "File_iwrite_at_all"};

/** Runs a nonblocking operation to its end. `start` starts it on the given memory. */
template <typename Start>
int run_to_its_end(const char *operation, File file, void *buffer, size_t count, Datatype datatype,
                   Request *request, Start start) {
    std::unique_ptr<MpiStatus> status(new (std::nothrow) MpiStatus());
    if (status == nullptr) {
        return fail_for_memory(operation, file, count);
    }
    const auto run = [&](void *memory) {
        Request inner = nullptr;
        const int started = start(memory, &inner);
        return started == kMpiSuccess ? mpi.wait(&inner, status.get()) : started;
    };
    const int result = run_in_host_memory(operation, file, buffer, count, datatype, run);
    return result == kMpiSuccess ? complete_at_once(std::move(status), request) : result;
}

template <const auto &kTable, size_t kIndex, typename Count, typename... Place>
struct Nonblocking {
    static int call(File file, Place... place, void *buffer, Count count, Datatype datatype,
                    Request *request) {
        const auto start = [&](void *memory, Request *started) {
            return replaced_by<&Nonblocking::call>(file, place..., memory, count, datatype,
                                                   started);
        };
        return concerns_gpu(buffer, count, datatype)
                   ? run_to_its_end(kTable[kIndex], file, buffer, static_cast<size_t>(count),
                                    datatype, request, start)
                   : start(buffer, request);
    }
};

// ---------------------------------------------------------------- split collective

constexpr const char *kBeginAtPointer[] = {"File_read_all_begin", "File_write_all_begin",
                                           "File_read_ordered_begin", "File_write_ordered_begin"};
constexpr const char *kBeginAtOffset[] = {"File_read_at_all_begin", "File_write_at_all_begin"};
constexpr const char *kEnd[] = {"File_read_all_end",     "File_write_all_end",
                                "File_read_ordered_end", "File_write_ordered_end",
                                "File_read_at_all_end",  "File_write_at_all_end"};

/** The mirrors of operations that have begun. A file has one at a time (MPI 3.1, section 13.4.5).
 */
struct Begun {
    std::mutex mutex;
    std::map<File, HostMirror> mirrors;
};

Begun &begun() {
    static Begun *const instance = new Begun;
    return *instance;
}

template <typename Begin>
int begin_in_host_memory(const char *operation, File file, void *buffer, size_t count,
                         Datatype datatype, Begin begin) {
    const auto run = [&] {
        HostMirror mirror(datatype, count, buffer);
        if (!mirror.load(operation)) {
            return fail(file, kMpiErrorOther);
        }
        std::map<File, HostMirror> node;  // allocated before: no failure after the begin
        void *const memory = node.emplace(file, std::move(mirror)).first->second.base();
        const int result = begin(memory);
        if (result == kMpiSuccess) {
            const std::lock_guard<std::mutex> lock(begun().mutex);
            begun().mirrors.erase(file);
            begun().mirrors.merge(node);
        }
        return result;
    };
    return unless_short(run, [&] { return fail_for_memory(operation, file, count); });
}

template <const auto &kTable, size_t kIndex, typename Count, typename... Place>
struct Begin {
    static int call(File file, Place... place, void *buffer, Count count, Datatype datatype) {
        const auto begin = [&](void *memory) {
            return replaced_by<&Begin::call>(file, place..., memory, count, datatype);
        };
        return concerns_gpu(buffer, count, datatype)
                   ? begin_in_host_memory(kTable[kIndex], file, buffer, static_cast<size_t>(count),
                                          datatype, begin)
                   : begin(buffer);
    }
};

template <size_t kIndex>
struct End {
    static int call(File file, void *buffer, MpiStatus *status) {
        std::optional<HostMirror> mirror;
        {
            const std::lock_guard<std::mutex> lock(begun().mutex);
            const auto found = begun().mirrors.find(file);
            if (found != begun().mirrors.end()) {
                mirror.emplace(std::move(found->second));
                begun().mirrors.erase(found);
            }
        }
        const int result = replaced_by<&End::call>(file, mirror ? mirror->base() : buffer, status);
        const char *const operation = kEnd[kIndex];
        return mirror && reads(operation) && !mirror->store(operation) ? fail(file, kMpiErrorOther)
                                                                       : result;
    }
};

// ---------------------------------------------------------------- redirection

struct Target : MpiTarget {
    /** Redirects all operations of a table, and their forms for large counts (MPI 4). */
    template <template <const auto &, size_t, typename, typename...> class Call, const auto &kTable,
              typename... Place>
    void redirect_table() const {
        redirect_all<Call, kTable, Place...>(std::make_index_sequence<std::size(kTable)>());
    }

    template <size_t... kIndex>
    void redirect_ends(std::index_sequence<kIndex...>) const {
        (redirect<&End<kIndex>::call>(kEnd[kIndex]), ...);
    }

private:
    template <template <const auto &, size_t, typename, typename...> class Call, const auto &kTable,
              typename... Place, size_t... kIndex>
    void redirect_all(std::index_sequence<kIndex...>) const {
        (redirect<&Call<kTable, kIndex, int, Place...>::call>(kTable[kIndex]), ...);
        (redirect<&Call<kTable, kIndex, Large, Place...>::call>(std::string(kTable[kIndex]) + "_c"),
         ...);
    }
};

}  // namespace

void redirect_file_calls(const MpiTarget &given) {
    const OpenMpiLibrary &library = given.library;
    if (!library.mpi("PMPI_File_call_errhandler", &mpi.call_errhandler) ||
        !library.mpi("PMPI_Grequest_start", &mpi.start) ||
        !library.mpi("PMPI_Grequest_complete", &mpi.complete) ||
        !library.mpi("PMPI_Wait", &mpi.wait)) {
        return;
    }
    const Target target = {given};
    target.redirect_table<Blocking, kAtPointer>();
    target.redirect_table<Blocking, kAtOffset, Offset>();
    target.redirect_table<Nonblocking, kStartAtPointer>();
    target.redirect_table<Nonblocking, kStartAtOffset, Offset>();
    target.redirect_table<Begin, kBeginAtPointer>();
    target.redirect_table<Begin, kBeginAtOffset, Offset>();
    target.redirect_ends(std::make_index_sequence<std::size(kEnd)>());
}

}  // namespace gpushm::openmpi
