// SPDX-License-Identifier: BSD-3-Clause
// Small collective operations on GPU memory, which run in host memory.
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

/** Call once, before the other functions. False: this Open MPI lacks a function that they need. */
bool prepare_small_collectives(const OpenMpiLibrary &library);

/** The size of an intracommunicator, and the rank of this process in it. */
struct Group {
    int size;
    int rank;
};

/** False for an intercommunicator, for MPI_COMM_NULL and for null. */
bool find_group(Handle communicator, Group *group);

/** `buffer`: of either parameter for which MPI takes MPI_IN_PLACE. */
bool is_in_place(const void *buffer);

/** Whether one of the buffers is in GPU memory, even one that the call does not use. Ask this
 * first, so that calls on host memory stay cheap. */
bool concern_gpu(const void *send, const void *receive);

/** The bytes of an element of a datatype without gaps that begins at the buffer. 0: another
 * datatype, a large one, or null. */
size_t small_element(Handle datatype);

/** `count`, or one more than any small operation has if `count` is negative or larger. Products
 * with it do not overflow. */
size_t small_count(ptrdiff_t count);

/** The bytes that a collective call reads and writes in the buffers of this rank. A buffer with 0
 * bytes is not replaced. */
struct OwnBuffers {
    const void *send;  // may be MPI_IN_PLACE
    void *receive;
    size_t send_bytes;    // read at `send`; 0 in place
    size_t input_begin;   // in place: where the call reads in the receive buffer
    size_t input_bytes;   // in place: how much it reads there
    size_t result_bytes;  // written from the begin of the receive buffer on, if the call succeeds

    size_t receive_bytes() const {
        return std::max(input_bytes > 0 ? input_begin + input_bytes : 0, result_bytes);
    }
};

/** Whether the operation is faster in host memory: up to a part of Limits::host_collectives, at
 * most a block of PinnedBufferPool, or a large one where other processes use the GPU. False for a
 * call that MPI refuses because its buffers are equal. */
bool is_small_reduction(const OwnBuffers &own, const Group &group);
bool is_small_allgather(const OwnBuffers &own, const Group &group);
bool is_small_alltoall(const OwnBuffers &own, const Group &group);
/** `all_bytes`: at the root and elsewhere, what the root sends. */
bool is_small_scatter(const OwnBuffers &own, size_t all_bytes);

/** One of a rank's buffers, replaced by host memory if a GPU has to copy it. */
class HostSide {
public:
    /** `bytes`: how much is read and written; 0: the buffer may be invalid. The buffer is used
     * itself if it needs no replacement, or if there is no host memory. */
    HostSide(const void *buffer, size_t bytes);

    /** The address to use instead of the buffer. */
    void *address() const { return address_; }

    /** The host memory is never used for anything else: somebody may write to it still. */
    void leave() {
        if (block_) {
            block_->leave();
        }
    }
    /** For a buffer that the program has used since this object was made: waits for its copies. */
    void meet_again() const;

    /** Copies from the buffer, and back to it. False, logged: the GPU failed. */
    bool load(size_t begin, size_t bytes) const;
    bool store(size_t bytes) const;

private:
    void *buffer_;
    void *address_;
    MemoryInfo info_;
    std::optional<HostBlock> block_;  // empty: the buffer is not replaced
};

/** Both buffers of a rank. */
class HostSides {
public:
    explicit HostSides(const OwnBuffers &own)
        : own_(own), send_(own.send, own.send_bytes), receive_(own.receive, own.receive_bytes()) {}

    void *send() const { return send_.address(); }
    void *receive() const { return receive_.address(); }

    void leave() {
        send_.leave();
        receive_.leave();
    }
    void meet_again() const {
        send_.meet_again();
        receive_.meet_again();
    }
    /** Copies what the call reads, and what it has written. False, logged: the GPU failed. */
    bool load() const {
        return send_.load(0, own_.send_bytes) && receive_.load(own_.input_begin, own_.input_bytes);
    }
    bool store() const { return receive_.store(own_.result_bytes); }

private:
    const OwnBuffers own_;
    HostSide send_;
    HostSide receive_;
};

void log_gpu_failure();

/** Logs it, calls the error handler of `communicator`, and returns the error class. */
int report_gpu_failure(Handle communicator);

/** Calls MPI's function `run(send, receive)` with host memory in place of buffers that a GPU has to
 * copy, and returns its result. Copies each buffer once in each direction, and only bytes that MPI
 * has written.
 *
 * Ranks need not agree: the messages of Open MPI's algorithms depend on sizes, operation and
 * communicator, not on addresses. Open MPI's own components for GPUs rely on that as well
 * (coll/cuda of 4.1 and 5.0, coll_cuda_allreduce.c; coll/accelerator of 6.0,
 * coll_accelerator_allreduce.c). Two algorithms of 6.0 depend on addresses, and expect GPU buffers
 * on all ranks or on none: acoll, which the user has to select (priority 0), and MPI_Alltoall of
 * han between nodes with xpmem (coll_han_alltoall.c). So may those of UCC, which coll/ucc calls. */
template <typename Run>
int run_by_host_memory(const OwnBuffers &own, Handle communicator, Run run) {
    const HostSides sides(own);
    if (!sides.load()) {
        return report_gpu_failure(communicator);
    }
    const int result = run(sides.send(), sides.receive());
    const bool stored = result != kMpiSuccess || sides.store();
    return stored ? result : report_gpu_failure(communicator);
}

}  // namespace gpushm::openmpi
