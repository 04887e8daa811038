// SPDX-License-Identifier: BSD-3-Clause
// MPI_Win_create_dynamic, MPI_Win_attach and MPI_Win_detach (doc/design/dynamic-windows.md).
#include "openmpi/one_sided/dynamic_windows.hpp"

#include "core/base/log.hpp"
#include "openmpi/binding/gpu_memory.hpp"
#include "openmpi/binding/open_mpi_progress.hpp"
#include "openmpi/one_sided/whole_region.hpp"
#include "openmpi/one_sided/window_selection.hpp"

#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace gpushm::openmpi {
namespace {

using Size = ptrdiff_t;  // MPI_Aint

constexpr int kMpiErrorBase = 24;
constexpr int kMpiErrorRmaAttach = 69;

struct Functions {
    int (*comm_size)(void *communicator, int *size);
    int (*allgather)(const void *send, int send_count, void *send_type, void *receive,
                     int receive_count, void *receive_type, void *communicator);
    int (*call_errhandler)(void *window, int code);
    void *byte;
};

struct State {
    Functions mpi;
    std::mutex mutex;
    std::unordered_map<void *, WholeRegion *> windows;  // those that osc/ucx serves
};

State &state() {
    static State *const instance = new State;
    return *instance;
}

WholeRegion *find_window(void *window) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    const auto known = state().windows.find(window);
    return known != state().windows.end() ? known->second : nullptr;
}

void forget_window(void *window) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    state().windows.erase(window);
}

/** Exchanges the places of the processes' logs. Collective: every process calls it, also with null
 * after a failure. */
int exchange_indexes(WholeRegion *own, void *communicator) {
    const Functions &mpi = state().mpi;
    int size = 0;
    int result = mpi.comm_size(communicator, &size);
    if (result != kMpiSuccess) {
        return result;
    }
    std::vector<RemoteIndex> all(static_cast<size_t>(size));
    const RemoteIndex none;
    result = mpi.allgather(own != nullptr ? &own->index() : &none, sizeof(RemoteIndex), mpi.byte,
                           all.data(), sizeof(RemoteIndex), mpi.byte, communicator);
    if (result == kMpiSuccess && own != nullptr) {
        own->know_indexes(all);
    }
    return result;
}

int attach(void *window, void *base, Size size);

/** Makes osc/ucx attach all addresses as one region, the only one that it sees. */
int attach_everything(void *communicator, void *window) {
    const int attached = replaced_by<attach>(window, WholeRegion::base(), WholeRegion::kLength);
    WholeRegion *const whole = attached == kMpiSuccess ? WholeRegion::take_new() : nullptr;
    if (whole != nullptr) {
        const std::lock_guard<std::mutex> lock(state().mutex);
        state().windows[window] = whole;
        whole->on_end([window] { forget_window(window); });
    }
    const int exchanged = exchange_indexes(whole, communicator);
    return attached != kMpiSuccess ? attached : exchanged;
}

int create_dynamic(void *info, void *communicator, void **window) {
    const WholeRegion::Watch watch;
    const int result = replaced_by<create_dynamic>(info, communicator, window);
    // Only osc/ucx maps memory with UCP.
    if (result != kMpiSuccess || !watch.has_mapped()) {
        return result;
    }
    return attach_everything(communicator, *window);
}

int fail(void *window, int code) {
    const int result = state().mpi.call_errhandler(window, code);
    return result != kMpiSuccess ? result : code;
}

int attach(void *window, void *base, Size size) {
    WholeRegion *const whole = find_window(window);
    if (whole == nullptr && is_left_to_others(window) && is_gpu_memory(base)) {
        GPUSHM_LOG(error,
                   "MPI_Win_attach of %td bytes of GPU memory at %p failed, because none of the "
                   "window's processes had used CUDA when it was created: create the window after "
                   "the first call of CUDA",
                   size, base);
        return fail(window, kMpiErrorRmaAttach);
    }
    if (whole == nullptr || base == nullptr) {
        return replaced_by<attach>(window, base, size);
    }
    const ucs_status_t status =
        size >= 0 ? whole->attach(base, static_cast<size_t>(size)) : UCS_ERR_INVALID_PARAM;
    if (status != UCS_OK) {
        GPUSHM_LOG(error,
                   "MPI_Win_attach of %td bytes at %p failed, because UCX cannot register them or "
                   "memory is short (%d): attach allocated memory, and less at a time",
                   size, base, status);
        return fail(window, kMpiErrorRmaAttach);
    }
    return kMpiSuccess;
}

int detach(void *window, const void *base) {
    WholeRegion *const whole = find_window(window);
    if (whole == nullptr) {
        return replaced_by<detach>(window, base);
    }
    const ucs_status_t status = whole->detach(base);
    if (status != UCS_OK) {
        GPUSHM_LOG(
            error,
            "MPI_Win_detach of %p failed, because no attached memory begins there: use the address "
            "that MPI_Win_attach got",
            base);
        return fail(window, kMpiErrorBase);
    }
    return kMpiSuccess;
}

bool find_functions(const OpenMpiLibrary &library, Functions *mpi) {
    mpi->byte = library.as_bound("ompi_mpi_byte");
    return mpi->byte != nullptr && library.mpi("PMPI_Comm_size", &mpi->comm_size) &&
           library.mpi("PMPI_Allgather", &mpi->allgather) &&
           library.mpi("PMPI_Win_call_errhandler", &mpi->call_errhandler) &&
           library.mpi("PMPI_Win_attach") != nullptr && library.mpi("PMPI_Win_detach") != nullptr;
}

}  // namespace

void redirect_dynamic_windows(const MpiTarget &target) {
    const OpenMpiLibrary &library = target.library;
    if (!find_progress(library) || !find_functions(library, &state().mpi) ||
        !redirect_window_memory(target.redirection)) {
        GPUSHM_LOG(debug,
                   "dynamic windows of Open MPI %s stay as they are: a function that gpushm needs "
                   "is missing",
                   library.version());
        return;
    }
    target.redirect<create_dynamic>("Win_create_dynamic");
    target.redirect<attach>("Win_attach");
    target.redirect<detach>("Win_detach");
}

}  // namespace gpushm::openmpi
