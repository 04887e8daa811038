// SPDX-License-Identifier: BSD-3-Clause
// Small nonblocking collective operations on GPU memory, which run in host memory.
#pragma once

#include "openmpi/binding/mpi_call.hpp"
#include "openmpi/binding/ompi_request.hpp"
#include "openmpi/binding/open_mpi_library.hpp"
#include "openmpi/collectives/small_collectives.hpp"

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

/** The host memory of an operation that has begun, and what its request is to do when it is
 * complete. */
struct Delivery {
    explicit Delivery(const OwnBuffers &own) : sides(own) {}
    const HostSides sides;
    OmpiRequest::Callback next = nullptr;
    void *next_data = nullptr;
};

/** Keeps the host memory until `request` completes, and then copies the result to GPU memory,
 * before MPI reports that. A failure of the GPU becomes the error of the request. Returns MPI's
 * result: that of the copy, if the request is complete already. Allocates nothing, because MPI uses
 * the host memory. */
int deliver_at_completion(std::unique_ptr<Delivery> delivery, Handle communicator, Handle request);

/** As run_by_host_memory(), for a nonblocking function `run(send, receive)` that sets `*request`.
 * Call it only if can_watch_requests(). Throws std::bad_alloc before the operation begins. */
template <typename Run>
int start_by_host_memory(const OwnBuffers &own, Handle communicator, Handle *request, Run run) {
    auto delivery = std::make_unique<Delivery>(own);
    if (!delivery->sides.load()) {
        return report_gpu_failure(communicator);
    }
    const int result = run(delivery->sides.send(), delivery->sides.receive());
    return result == kMpiSuccess
               ? deliver_at_completion(std::move(delivery), communicator, *request)
               : result;
}

}  // namespace gpushm::openmpi
