// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/collectives/small_collectives.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/copy/copy_any.hpp"
#include "core/copy/engine_pool.hpp"
#include "core/memory/memory_query.hpp"
#include "core/memory/page_residency.hpp"
#include "core/standby/gpu_sharing.hpp"
#include "openmpi/binding/opal_datatype.hpp"
#include "openmpi/settings/settings.hpp"

#include <cstdint>

namespace gpushm::openmpi {
namespace {

// More than any operation has that runs in host memory.
constexpr size_t kMax = PinnedBufferPool::kLargeBlockBytes;
constexpr size_t kMaxAlone = PinnedBufferPool::kBlockBytes;  // where kernels wait for no others

/** Functions of MPI, and a handle. */
struct Mpi {
    int (*comm_test_inter)(Handle communicator, int *is_inter);
    int (*comm_size)(Handle communicator, int *size);
    int (*comm_rank)(Handle communicator, int *rank);
    int (*call_errhandler)(Handle communicator, int code);
    Handle no_communicator;  // MPI_COMM_NULL
};
Mpi mpi;

bool is_at_most(size_t most, const OwnBuffers &own) {
    const size_t bytes = std::max(own.send_bytes, own.receive_bytes());
    const bool refused = own.send == own.receive && own.result_bytes > 0;
    return bytes <= std::min(most, kMax) && !refused;
}

/** At most kMaxAlone, so that products with it do not overflow. */
size_t limit() {
    return std::min(limits().host_collectives, kMaxAlone);
}

/** The memory in which the operation would run. */
MemoryInfo memory_of(const OwnBuffers &own) {
    return query_memory(own.result_bytes > 0 ? own.receive : own.send);
}

/** Whether other processes use the GPU. */
bool shares_gpu(const OwnBuffers &own) {
    const MemoryInfo info = memory_of(own);
    return info.needs_gpu() &&
           GpuSharing::instance().others(info.device) != GpuSharing::Others::none;
}

/** Whether a kernel that reduces may wait for kernels of other processes: of their programs, or of
 * the one process that may run kernels of gpushm. */
bool waits_for_kernels(const OwnBuffers &own) {
    const MemoryInfo info = memory_of(own);
    GpuSharing &sharing = GpuSharing::instance();
    return info.needs_gpu() && (sharing.others(info.device) == GpuSharing::Others::kernels ||
                                !sharing.may_run_kernels(info.device));
}

/** Whether several messages of each rank are slower than the way through host memory, because one
 * process of a GPU copies for the others. */
bool is_slow_exchange(const OwnBuffers &own, const Group &group) {
    return group.size > 2 && is_at_most(limit(), own) && shares_gpu(own);
}

/** Copies without a query of the memory kinds. copy_any(), which has them queried and more ways to
 * copy, is the fallback. */
bool copy(void *destination, const void *source, size_t bytes, const MemoryInfo &gpu_side,
          CopyDirection direction) {
    const auto run = [&] {
        BorrowedEngine engine;
        if (engine->copy({destination, source, bytes, gpu_side, direction}) == Status::ok) {
            return true;
        }
        engine.discard();
        return copy_any(destination, source, bytes) == Status::ok;
    };
    return unless_short(run, [bytes] {
        GPUSHM_LOG(
            error,
            "cannot allocate host memory to copy %zu bytes of GPU memory: raise the memory limit",
            bytes);
        return false;
    });
}

}  // namespace

bool prepare_small_collectives(const OpenMpiLibrary &library) {
    mpi.no_communicator = library.as_bound("ompi_mpi_comm_null");
    return mpi.no_communicator != nullptr &&
           library.mpi("PMPI_Comm_test_inter", &mpi.comm_test_inter) &&
           library.mpi("PMPI_Comm_size", &mpi.comm_size) &&
           library.mpi("PMPI_Comm_rank", &mpi.comm_rank) &&
           library.mpi("PMPI_Comm_call_errhandler", &mpi.call_errhandler);
}

bool find_group(Handle communicator, Group *group) {
    int is_inter = 1;
    return communicator != nullptr && communicator != mpi.no_communicator &&
           mpi.comm_test_inter(communicator, &is_inter) == kMpiSuccess && is_inter == 0 &&
           mpi.comm_size(communicator, &group->size) == kMpiSuccess &&
           mpi.comm_rank(communicator, &group->rank) == kMpiSuccess;
}

/** MPI_IN_PLACE (ompi/include/mpi.h.in of Open MPI 4.1, 5.0 and 6.0). */
bool is_in_place(const void *buffer) {
    return reinterpret_cast<uintptr_t>(buffer) == 1;
}

bool concern_gpu(const void *send, const void *receive) {
    return (!is_in_place(send) && query_memory(send).needs_gpu()) ||
           query_memory(receive).needs_gpu();
}

size_t small_element(Handle datatype) {
    if (datatype == nullptr) {
        return 0;
    }
    const OpalDatatype type(datatype);
    return type.is_dense() && type.size() <= kMax ? type.size() : 0;
}

size_t small_count(ptrdiff_t count) {
    return std::min(static_cast<size_t>(count), kMax + 1);
}

// The sizes at which GPU memory and host memory take the same time:
// doc/decisions/openmpi-small-collectives.md.

bool is_small_reduction(const OwnBuffers &own, const Group &group) {
    const size_t alone = limit() / 4 * 3 * static_cast<size_t>(std::max(group.size / 2, 1));
    return is_at_most(std::min(alone, kMaxAlone), own) ||
           (is_at_most(std::min(2 * limit(), kMaxAlone), own) && shares_gpu(own)) ||
           (is_at_most(16 * limit(), own) && waits_for_kernels(own));
}

bool is_small_allgather(const OwnBuffers &own, const Group &group) {
    const auto ranks = static_cast<size_t>(group.size);
    return is_at_most(std::min(limit() / 64 * ranks * ranks, kMaxAlone), own) ||
           is_slow_exchange(own, group);
}

bool is_small_alltoall(const OwnBuffers &own, const Group &group) {
    return is_at_most(limit() / 8, own) || is_slow_exchange(own, group);
}

bool is_small_scatter(const OwnBuffers &own, size_t all_bytes) {
    return all_bytes <= limit() / 8 && is_at_most(limit() / 8, own);
}

HostSide::HostSide(const void *buffer, size_t bytes)
    : buffer_(const_cast<void *>(buffer)), address_(buffer_) {
    if (bytes == 0) {
        return;
    }
    info_ = query_memory(buffer);
    if (!gpu_copies(info_, buffer, bytes)) {
        return;
    }
    block_.emplace(bytes);
    if (block_->address() == nullptr) {
        block_.reset();
        return;
    }
    address_ = block_->address();
    GPUSHM_LOG_ONCE(debug,
                    "small collective operations of Open MPI on GPU memory run in host memory");
}

void HostSide::meet_again() const {
    if (block_) {
        query_memory(buffer_);
    }
}

bool HostSide::load(size_t begin, size_t bytes) const {
    return !block_ || bytes == 0 ||
           copy(static_cast<char *>(address_) + begin, static_cast<const char *>(buffer_) + begin,
                bytes, info_, CopyDirection::from_gpu);
}

bool HostSide::store(size_t bytes) const {
    return !block_ || bytes == 0 || copy(buffer_, address_, bytes, info_, CopyDirection::to_gpu);
}

void log_gpu_failure() {
    GPUSHM_LOG(error,
               "a collective operation of Open MPI on a buffer in GPU memory failed: see the "
               "message before this one");
}

int report_gpu_failure(Handle communicator) {
    log_gpu_failure();
    mpi.call_errhandler(communicator, kMpiErrorOther);
    return kMpiErrorOther;
}

}  // namespace gpushm::openmpi
