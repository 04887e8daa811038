// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/collectives/nonblocking_collectives.hpp"

#include "core/base/log.hpp"

#include <mutex>

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

int deliver_and_go_on(const Delivery &delivery, void *handle) {
    OmpiRequest request(handle);
    deliver(delivery.sides, request);
    request.set_callback(nullptr, delivery.next_data);
    return delivery.next != nullptr ? delivery.next(handle) : 0;
}

void watch(OmpiRequest request, OmpiRequest::Callback callback, Delivery *delivery) {
    delivery->next = request.callback();
    delivery->next_data = request.callback_data();
    request.set_callback(callback, delivery);
}

int complete(void *handle) {
    const std::unique_ptr<Delivery> delivery(
        static_cast<Delivery *>(OmpiRequest(handle).callback_data()));
    return deliver_and_go_on(*delivery, handle);
}

// ---------------------------------------------------------------- persistent requests

/** Those that gpushm has changed. Never destroyed. */
struct Persistent {
    std::mutex mutex;
    Deliveries deliveries;

    static Persistent &instance() {
        static Persistent *const made = new Persistent;
        return *made;
    }
    /** Null: not one of them. */
    Delivery *find(Handle request) {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto found = deliveries.find(request);
        return found != deliveries.end() ? found->second.get() : nullptr;
    }
};

int complete_persistent(void *handle) {
    return deliver_and_go_on(*static_cast<Delivery *>(OmpiRequest(handle).callback_data()), handle);
}

/** Replaces the function of changed requests, of which MPI_Startall gives several at a time. */
int start_persistent(size_t count, void **requests) {
    for (size_t i = 0; i < count; ++i) {
        Delivery *const delivery = Persistent::instance().find(requests[i]);
        if (delivery == nullptr) {
            return kMpiErrorOther;
        }
        delivery->sides.meet_again();
        if (!delivery->sides.load()) {
            log_gpu_failure();
            return kMpiErrorOther;
        }
        // A request that needs no messages does not call the function: its result is its input.
        if (OmpiRequest(requests[i]).callback() != complete_persistent) {
            watch(OmpiRequest(requests[i]), complete_persistent, delivery);
        }
        const int result = delivery->start(1, &requests[i]);
        if (result != kMpiSuccess) {
            return result;
        }
    }
    return kMpiSuccess;
}

/** Replaces the function of changed requests. Open MPI uses the memory of a request again, as it
 * is. */
int free_persistent(void **handle) {
    void *const request = *handle;
    Delivery *const delivery = Persistent::instance().find(request);
    OmpiRequest freed(request);
    freed.set_start(delivery->start);
    freed.set_free(delivery->free);
    const int result = delivery->free(handle);
    if (result != kMpiSuccess) {  // it is not complete
        freed.set_start(start_persistent);
        freed.set_free(free_persistent);
        return result;
    }
    const std::lock_guard<std::mutex> lock(Persistent::instance().mutex);
    Persistent::instance().deliveries.erase(request);
    return kMpiSuccess;
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
    watch(OmpiRequest(request), complete, delivery.release());
    return kMpiSuccess;
}

void deliver_at_completions(Deliveries::node_type delivery, Handle request) {
    OmpiRequest changed(request);
    delivery.mapped()->start = changed.start();
    delivery.mapped()->free = changed.free();
    delivery.key() = request;
    {
        const std::lock_guard<std::mutex> lock(Persistent::instance().mutex);
        Persistent::instance().deliveries.insert(std::move(delivery));
    }
    changed.set_start(start_persistent);
    changed.set_free(free_persistent);
}

}  // namespace gpushm::openmpi
