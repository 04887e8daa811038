// SPDX-License-Identifier: BSD-3-Clause
// Small nonblocking and persistent collective operations on GPU memory, which run in host memory.
#pragma once

#include "openmpi/binding/mpi_call.hpp"
#include "openmpi/binding/ompi_request.hpp"
#include "openmpi/binding/open_mpi_library.hpp"
#include "openmpi/collectives/small_collectives.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

namespace gpushm::openmpi {

/** Call once, before the other functions. If this Open MPI lacks a function that they need, no
 * nonblocking operation runs in host memory. */
void prepare_nonblocking_collectives(const OpenMpiLibrary &library);

/** Whether a function of gpushm can be called when a request completes: the layout of requests is
 * the expected one, and no other thread may complete one before gpushm has put its function there
 * (MPI_THREAD_MULTIPLE). Only the first call takes time. */
bool can_watch_requests();

/** The host memory of an operation, and what its request is to do when it is complete. */
struct Delivery {
    Delivery(const OwnBuffers &own, Handle of_communicator)
        : sides(own),
          communicator(of_communicator),
          bytes(std::max(own.send_bytes, own.receive_bytes())) {}
    HostSides sides;
    const Handle communicator;
    const size_t bytes;  // of the larger buffer
    OmpiRequest::Callback next = nullptr;
    void *next_data = nullptr;
    // Of a persistent request:
    OmpiRequest::Start start = nullptr;
    OmpiRequest::Free free = nullptr;
};

/** Keeps the host memory until `request` completes, and then copies the result to GPU memory,
 * before MPI reports that. A failure of the GPU becomes the error of the request. Returns MPI's
 * result: that of the copy, if the request is complete already. Allocates nothing, because MPI uses
 * the host memory. */
int deliver_at_completion(std::unique_ptr<Delivery> delivery, Handle request);

/** As run_by_host_memory(), for a nonblocking function `run(send, receive)` that sets `*request`.
 * Call it only if can_watch_requests(). Throws std::bad_alloc before the operation begins. */
template <typename Run>
int start_by_host_memory(const OwnBuffers &own, Handle communicator, Handle *request, Run run) {
    auto delivery = std::make_unique<Delivery>(own, communicator);
    if (!delivery->sides.load()) {
        return report_gpu_failure(communicator);
    }
    const int result = run(delivery->sides.send(), delivery->sides.receive());
    if (result == kMpiSuccess) {
        return deliver_at_completion(std::move(delivery), *request);
    }
    delivery->sides.leave();  // receives may be posted
    return result;
}

/** Of persistent requests. */
using Deliveries = std::map<Handle, std::unique_ptr<Delivery>>;

/** Whether not too many persistent requests have blocks of PinnedBufferPool like this one's. */
bool may_keep(const Delivery &delivery);

/** Keeps the host memory until `request`, a persistent one, is freed. Whenever it is started, the
 * host memory is loaded first; whenever it completes, the result is copied to GPU memory. Allocates
 * nothing, because the request names the host memory. */
void deliver_at_completions(Deliveries::node_type delivery, Handle request);

/** start_by_host_memory() for a function `run(send, receive)` that makes a persistent request. In
 * GPU memory if may_keep() says so. */
template <typename Run>
int prepare_in_host_memory(const OwnBuffers &own, Handle communicator, Handle *request, Run run) {
    Deliveries made;
    const auto delivery =
        made.emplace(nullptr, std::make_unique<Delivery>(own, communicator)).first;
    const HostSides &sides = delivery->second->sides;
    if (!may_keep(*delivery->second)) {
        return run(own.send, own.receive);
    }
    const int result = run(sides.send(), sides.receive());
    if (result == kMpiSuccess) {
        deliver_at_completions(made.extract(delivery), *request);
    }
    return result;
}

}  // namespace gpushm::openmpi
