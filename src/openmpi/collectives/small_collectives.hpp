// SPDX-License-Identifier: BSD-3-Clause
// Small collective operations on GPU memory, by way of host memory.
#pragma once

#include "core/memory/memory_info.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"
#include "openmpi/binding/mpi_call.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace gpushm::openmpi {

/** MPI_Datatype, MPI_Op, MPI_Comm of Open MPI. */
using Handle = void *;

/** What is said below of communicators works from then on; false: not with this Open MPI. */
bool prepare_small_collectives(const OpenMpiLibrary &library);

/** Of an intracommunicator; `rank` is this process's. */
struct Group {
    int size;
    int rank;
};

/** False for an intercommunicator, for MPI_COMM_NULL and for null. */
bool find_group(Handle communicator, Group *group);

bool is_in_place(const void *send);

/** Whether one of them is in GPU memory, be it of no meaning for the call. To be asked first: calls
 * on host memory cost the least then. */
bool concern_gpu(const void *send, const void *receive);

/** Bytes of an element of a datatype whose elements follow each other without gaps, the first one
 * where the buffer begins; 0: of another one, one that is not small, or null. */
size_t small_element(Handle datatype);

/** `count` itself, or more than any small operation has for one that is negative or so large: what
 * is computed with it does not overflow. */
size_t small_count(ptrdiff_t count);

/** What a collective call of this rank reads and writes, in bytes. A buffer of which nothing is
 * said here stays as it is. */
struct OwnBuffers {
    const void *send;  // may be MPI_IN_PLACE
    void *receive;
    size_t send_bytes;   // read at `send`; in place none
    size_t input_begin;  // in place, of the receive buffer: what is read there
    size_t input_bytes;
    size_t result_bytes;  // written from the beginning of the receive buffer on, when the call
                          // succeeds

    size_t receive_bytes() const {
        return std::max(input_bytes > 0 ? input_begin + input_bytes : 0, result_bytes);
    }
};

/** Whether the way by host memory is the quicker one: up to about Limits::host_collectives, and
 * never for more than a block of PinnedBufferPool. Not so for a call that MPI refuses because its
 * buffers are the same. */
bool is_small_reduction(const OwnBuffers &own, const Group &group);
bool is_small_allgather(const OwnBuffers &own, const Group &group);
bool is_small_alltoall(const OwnBuffers &own);

/** One of a rank's buffers, replaced by host memory if a GPU has to copy it. */
class HostSide {
public:
    /** `bytes`: all that is read or written; 0: it is not looked at. Where there is no host memory,
     * as where none is needed, it stays the buffer itself, and nothing is copied. */
    HostSide(const void *buffer, size_t bytes);

    /** In place of the buffer. */
    void *address() const { return address_; }

    /** From the buffer, and back to it; false when the GPU fails, logged. */
    bool load(size_t begin, size_t bytes) const;
    bool store(size_t bytes) const;

private:
    void *buffer_;
    void *address_;
    MemoryInfo info_;
    std::optional<HostBlock> block_;  // null: it is not replaced
};

/** Has `communicator`'s error handler called, and returns the error of MPI. */
int report_gpu_failure(Handle communicator);

/** Calls `run(send, receive)`, which is MPI's function, with host memory in place of what a GPU has
 * to copy, and returns what that returns. One copy for each buffer and direction; what MPI did not
 * write is not written.
 *
 * Ranks need not agree: which messages Open MPI's algorithms send depends on sizes, operation and
 * communicator, and not on addresses. Its own components for GPUs rely on that and replace buffers
 * in the same way (coll/cuda of 4.1 and 5.0, coll_cuda_allreduce.c; coll/accelerator of 6.0,
 * coll_accelerator_allreduce.c). What does look at addresses in 6.0 expects that all ranks have GPU
 * buffers or none: acoll, which has to be asked for (priority 0), and MPI_Alltoall of han between
 * nodes whose processes map each other's memory (xpmem; coll_han_alltoall.c). */
template <typename Run>
int run_by_host_memory(const OwnBuffers &own, Handle communicator, Run run) {
    const HostSide send(own.send, own.send_bytes);
    const HostSide receive(own.receive, own.receive_bytes());
    if (!send.load(0, own.send_bytes) || !receive.load(own.input_begin, own.input_bytes)) {
        return report_gpu_failure(communicator);
    }
    const int result = run(send.address(), receive.address());
    const bool stored = result != kMpiSuccess || receive.store(own.result_bytes);
    return stored ? result : report_gpu_failure(communicator);
}

}  // namespace gpushm::openmpi
