// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/collectives/nonblocking_collectives.hpp"

#include "core/base/log.hpp"

namespace gpushm::openmpi {
namespace {

constexpr int kThreadMultiple = 3;  // MPI_THREAD_MULTIPLE

/** Functions of MPI. */
struct Mpi {
    int (*query_thread)(int *provided);
    int (*get_status)(Handle request, int *is_complete, void *status);
    int (*grequest_start)(int (*query)(void *, void *), int (*free)(void *),
                          int (*cancel)(void *, int), void *state, Handle *request);
    int (*grequest_complete)(Handle request);
    int (*wait)(Handle *request, void *status);
    bool found;
};
Mpi mpi;

int nothing_to_tell(void *, void *) {
    return kMpiSuccess;
}
int nothing_to_free(void *) {
    return kMpiSuccess;
}
int nothing_to_cancel(void *, int) {
    return kMpiSuccess;
}

bool has_expected_requests() {
    Handle request = nullptr;
    if (mpi.grequest_start(nothing_to_tell, nothing_to_free, nothing_to_cancel, nullptr,
                           &request) != kMpiSuccess) {
        return false;
    }
    const bool expected = OmpiRequest(request).is_new_generalized_request();
    return mpi.grequest_complete(request) == kMpiSuccess &&
           mpi.wait(&request, nullptr) == kMpiSuccess && expected;
}

bool find_out() {
    int provided = kThreadMultiple;
    const bool possible = mpi.found && mpi.query_thread(&provided) == kMpiSuccess &&
                          provided != kThreadMultiple && has_expected_requests();
    GPUSHM_LOG(debug, "small nonblocking collective operations on GPU memory run in %s memory",
               possible ? "host" : "GPU");
    return possible;
}

/** Copies no result of an operation that has failed. */
void deliver(const HostSides &sides, OmpiRequest request) {
    if (request.error() == kMpiSuccess && !sides.store()) {
        log_gpu_failure();
        request.set_error(kMpiErrorOther);
    }
}

int complete(void *handle) {
    OmpiRequest request(handle);
    const std::unique_ptr<Delivery> delivery(static_cast<Delivery *>(request.callback_data()));
    deliver(delivery->sides, request);
    request.set_callback(nullptr, delivery->next_data);
    return delivery->next != nullptr ? delivery->next(handle) : 0;
}

}  // namespace

void prepare_nonblocking_collectives(const OpenMpiLibrary &library) {
    mpi.found = library.mpi("PMPI_Query_thread", &mpi.query_thread) &&
                library.mpi("PMPI_Request_get_status", &mpi.get_status) &&
                library.mpi("PMPI_Grequest_start", &mpi.grequest_start) &&
                library.mpi("PMPI_Grequest_complete", &mpi.grequest_complete) &&
                library.mpi("PMPI_Wait", &mpi.wait);
}

bool can_watch_requests() {
    static const bool possible = find_out();
    return possible;
}

int deliver_at_completion(std::unique_ptr<Delivery> delivery, Handle communicator, Handle request) {
    int is_complete = 0;
    // May be one that all operations without messages share (ompi_request_empty).
    const int result = mpi.get_status(request, &is_complete, nullptr);
    if (result != kMpiSuccess || is_complete != 0) {
        const bool stored = result != kMpiSuccess || delivery->sides.store();
        return stored ? result : report_gpu_failure(communicator);
    }
    OmpiRequest watched(request);
    delivery->next = watched.callback();
    delivery->next_data = watched.callback_data();
    watched.set_callback(complete, delivery.release());
    return kMpiSuccess;
}

}  // namespace gpushm::openmpi
