// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/collectives/nonblocking_collectives.hpp"

#include "core/base/log.hpp"

#include <array>
#include <cstddef>
#include <mutex>

namespace gpushm::openmpi {
namespace {

/** Functions of MPI, and a variable. */
struct Mpi {
    int (*get_status)(Handle request, int *is_complete, void *status);
    int (*grequest_start)(int (*query)(void *, void *), int (*free)(void *),
                          int (*cancel)(void *, int), void *state, Handle *request);
    int (*grequest_complete)(Handle request);
    int (*wait)(Handle *request, void *status);
    /** opal_uses_threads: whether MPI_THREAD_MULTIPLE was granted, also to a session. */
    const bool *uses_threads;
    bool found;
};
Mpi mpi;

// Persistent requests keep blocks of PinnedBufferPool, two each, which others need as well: at most
// half of those of each size, and none of the two large ones.
constexpr std::array<size_t, 3> kMaxPersistent = {16, 4, 0};

/** By the size of the blocks, as in kMaxPersistent. */
size_t class_of(const Delivery &delivery) {
    return delivery.bytes <= PinnedBufferPool::kSmallBlockBytes ? 0
           : delivery.bytes <= PinnedBufferPool::kBlockBytes    ? 1
                                                                : 2;
}

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
    const bool expected = mpi.found && has_expected_requests();
    GPUSHM_LOG(debug, "small nonblocking collective operations on GPU memory run in %s memory",
               expected ? "host" : "GPU");
    return expected;
}

/** Delivers the result of a request. Messages of an operation that has failed may still come: their
 * memory is never used again. */
void deliver(Delivery *delivery, OmpiRequest request) {
    if (request.error() != kMpiSuccess) {
        delivery->sides.leave();
    } else if (!delivery->sides.store()) {
        log_gpu_failure();
        request.set_error(kMpiErrorOther);
    }
}

int deliver_and_go_on(Delivery *delivery, void *handle) {
    OmpiRequest request(handle);
    deliver(delivery, request);
    request.set_callback(nullptr, delivery->next_data);
    return delivery->next != nullptr ? delivery->next(handle) : 0;
}

void watch(OmpiRequest request, OmpiRequest::Callback callback, Delivery *delivery) {
    delivery->next = request.callback();
    delivery->next_data = request.callback_data();
    request.set_callback(callback, delivery);
}

int complete(void *handle) {
    const std::unique_ptr<Delivery> delivery(
        static_cast<Delivery *>(OmpiRequest(handle).callback_data()));
    return deliver_and_go_on(delivery.get(), handle);
}

// ---------------------------------------------------------------- persistent requests

/** Those that gpushm has changed. Never destroyed. */
struct Persistent {
    std::mutex mutex;
    Deliveries deliveries;
    std::array<size_t, kMaxPersistent.size()> counts = {};  // by class_of()

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
    /** Open MPI may have made a request where another one was that nobody has freed, with the
     * functions of that one. */
    void add(Deliveries::node_type delivery) {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto former = deliveries.find(delivery.key());
        if (former != deliveries.end()) {
            delivery.mapped()->start = former->second->start;
            delivery.mapped()->free = former->second->free;
            remove(former);
        }
        ++counts[class_of(*delivery.mapped())];
        deliveries.insert(std::move(delivery));
    }
    void remove(Deliveries::iterator delivery) {
        --counts[class_of(*delivery->second)];
        deliveries.erase(delivery);
    }
};

int complete_persistent(void *handle) {
    return deliver_and_go_on(static_cast<Delivery *>(OmpiRequest(handle).callback_data()), handle);
}

int start_one(Handle request) {
    Delivery *const delivery = Persistent::instance().find(request);
    if (delivery == nullptr) {
        return kMpiErrorOther;
    }
    delivery->sides.meet_again();
    if (!delivery->sides.load()) {
        return report_gpu_failure(delivery->communicator);
    }
    OmpiRequest started(request);
    watch(started, complete_persistent, delivery);
    const int result = delivery->start(1, &request);
    if (result != kMpiSuccess && started.callback() == complete_persistent) {
        started.set_callback(delivery->next, delivery->next_data);
    }
    return result;
}

/** Replaces the function of changed requests, of which MPI_Startall gives several at a time; it
 * ignores the result. */
int start_persistent(size_t count, void **requests) {
    int result = kMpiSuccess;
    for (size_t i = 0; i < count; ++i) {
        const int started = start_one(requests[i]);
        result = result != kMpiSuccess ? result : started;
    }
    return result;
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
    Persistent &persistent = Persistent::instance();
    const std::lock_guard<std::mutex> lock(persistent.mutex);
    persistent.remove(persistent.deliveries.find(request));
    return kMpiSuccess;
}

}  // namespace

void prepare_nonblocking_collectives(const OpenMpiLibrary &library) {
    mpi.uses_threads = static_cast<const bool *>(library.as_bound("opal_uses_threads"));
    mpi.found = mpi.uses_threads != nullptr &&
                library.mpi("PMPI_Request_get_status", &mpi.get_status) &&
                library.mpi("PMPI_Grequest_start", &mpi.grequest_start) &&
                library.mpi("PMPI_Grequest_complete", &mpi.grequest_complete) &&
                library.mpi("PMPI_Wait", &mpi.wait);
}

bool can_watch_requests() {
    static const bool has_expected = find_out();
    return has_expected && !*mpi.uses_threads;
}

bool may_keep(const Delivery &delivery) {
    Persistent &persistent = Persistent::instance();
    const std::lock_guard<std::mutex> lock(persistent.mutex);
    const size_t size = class_of(delivery);
    return persistent.counts[size] < kMaxPersistent[size];
}

int deliver_at_completion(std::unique_ptr<Delivery> delivery, Handle request) {
    int is_complete = 0;
    if (mpi.get_status(request, &is_complete, nullptr) != kMpiSuccess || is_complete == 0) {
        watch(OmpiRequest(request), complete, delivery.release());
        return kMpiSuccess;
    }
    // It may be one that all operations without messages share (ompi_request_empty).
    if (OmpiRequest(request).error() != kMpiSuccess) {
        delivery->sides.leave();
        return kMpiSuccess;  // MPI_Wait returns the error
    }
    return delivery->sides.store() ? kMpiSuccess : report_gpu_failure(delivery->communicator);
}

void deliver_at_completions(Deliveries::node_type delivery, Handle request) {
    OmpiRequest changed(request);
    if (changed.start() == nullptr) {
        return;  // an operation without messages, whose result is its input
    }
    delivery.mapped()->start = changed.start();
    delivery.mapped()->free = changed.free();
    delivery.key() = request;
    Persistent::instance().add(std::move(delivery));
    changed.set_start(start_persistent);
    changed.set_free(free_persistent);
}

}  // namespace gpushm::openmpi
