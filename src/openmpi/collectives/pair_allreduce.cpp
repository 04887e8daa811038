// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/collectives/pair_allreduce.hpp"

#include "core/copy/reduction.hpp"
#include "core/memory/memory_query.hpp"
#include "core/pinning/device_buffer_pool.hpp"
#include "core/standby/gpu_sharing.hpp"
#include "openmpi/binding/gpu_memory.hpp"
#include "openmpi/binding/opal_datatype.hpp"
#include "openmpi/collectives/agreement_attribute.hpp"
#include "openmpi/collectives/predefined_operations.hpp"
#include "openmpi/settings/settings.hpp"

#include <algorithm>
#include <climits>
#include <memory>
#include <optional>

namespace gpushm::openmpi {
namespace {

// doc/decisions/openmpi-pair-allreduce.md has the times of both ways.
constexpr size_t kMinBytes = 32u << 10;       // below, host memory is quicker
constexpr size_t kMinHalved = 32u << 20;      // from here on, each rank reduces a half
constexpr size_t kMostTogether = 128u << 20;  // bounds the memory that MPI_IN_PLACE takes

struct Mpi {
    int (*reduce_local)(const void *in, void *inout, int count, Handle datatype, Handle operation);
    int (*call_errhandler)(Handle communicator, int code);
};
Mpi mpi;
bool is_prepared = false;

/** Memory of the kind of another buffer. */
class Scratch {
public:
    Scratch(size_t bytes, const void *like) {
        const MemoryInfo info = query_memory(like);
        DeviceBufferPool &blocks = DeviceBufferPool::instance();
        on_gpu_ = info.kind == MemoryKind::device ? blocks.take(bytes, info) : nullptr;
        if (on_gpu_ == nullptr) {
            in_host_memory_.reset(new char[bytes]);
        }
    }
    ~Scratch() {
        if (on_gpu_ != nullptr) {
            DeviceBufferPool::instance().give_back(on_gpu_);
        }
    }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;

    void *address() const { return on_gpu_ != nullptr ? on_gpu_ : in_host_memory_.get(); }

private:
    void *on_gpu_;
    std::unique_ptr<char[]> in_host_memory_;
};

/** The bytes of an element; 0: MPI refuses the datatype. */
size_t element_of(Handle datatype) {
    const OpalDatatype type(datatype);
    return type.is_committed() ? type.size() : 0;
}

/** Whether gpushm can run such operations at all. The same on both ranks, unless MPI refuses the
 * call. */
bool can_be_ours(const AllreduceCall &call) {
    const bool is_refused = is_in_place(call.receive) || call.send == call.receive;
    return is_prepared && !is_refused && call.count <= INT_MAX &&
           gpus_compute(call.operation, call.datatype);
}

bool is_free_gpu_memory(const void *address) {
    const MemoryInfo info = query_memory(address);
    return info.kind == MemoryKind::device && gpu_can_reduce(info) &&
           GpuSharing::instance().others(info.device) == GpuSharing::Others::none;
}

}  // namespace

bool prepare_pair_allreduce(const OpenMpiLibrary &library) {
    is_prepared = library.mpi("PMPI_Reduce_local", &mpi.reduce_local) &&
                  library.mpi("PMPI_Comm_call_errhandler", &mpi.call_errhandler) &&
                  prepare_agreements(library);
    return is_prepared;
}

PairAllreduce::PairAllreduce(const AllreduceCall &call)
    : call_(call), element_(element_of(call.datatype)) {
    const size_t bytes = static_cast<size_t>(std::max(call.count, ptrdiff_t{0})) * element_;
    Group group;
    if (bytes < kMinBytes || !can_be_ours(call) || !find_group(call.communicator, &group) ||
        group.size != 2) {
        return;
    }
    rank_ = group.rank;
    agreement_ = agreement_of(call.communicator, rank_);
    is_ours_ = agreement_ != nullptr && agreement_->begin(bytes, is_for_gpu(bytes));
}

/** Whether this rank prefers gpushm's way. */
bool PairAllreduce::is_for_gpu(size_t bytes) const {
    return bytes >= limits().host_collectives / 2 && is_free_gpu_memory(call_.receive) &&
           (is_in_place(call_.send) || is_free_gpu_memory(call_.send));
}

void PairAllreduce::ended_elsewhere(int result) {
    if (agreement_ != nullptr) {
        agreement_->end(result == kMpiSuccess);
    }
}

int PairAllreduce::run() const {
    const auto count = static_cast<size_t>(call_.count);
    int result = kMpiSuccess;
    for (size_t begin = 0; begin < count && result == kMpiSuccess;) {
        const Part part = {begin, std::min(count - begin, kMostTogether / element_)};
        result = part.count * element_ < kMinHalved ? reduce_part(part, part) : reduce_halves(part);
        begin += part.count;
    }
    if (result != kMpiSuccess) {
        mpi.call_errhandler(call_.communicator, result);
    }
    return result;
}

int PairAllreduce::reduce_halves(const Part &part) const {
    const Part low = {part.begin, part.count / 2};
    const Part high = {low.begin + low.count, part.count - low.count};
    const Part &own = rank_ == 0 ? low : high;
    const Part &theirs = rank_ == 0 ? high : low;
    const int result = reduce_part(own, theirs);
    return result == kMpiSuccess ? exchange(place(call_.receive, theirs.begin), theirs.count,
                                            place(call_.receive, own.begin), own.count)
                                 : result;
}

/** Sends the peer what it reduces, and reduces this rank's part. */
int PairAllreduce::reduce_part(const Part &own, const Part &theirs) const {
    void *const result = place(call_.receive, own.begin);
    const bool in_place = is_in_place(call_.send);
    const void *const input = in_place ? call_.receive : call_.send;
    std::optional<Scratch> scratch;
    if (in_place) {
        scratch.emplace(own.count * element_, call_.receive);
    }
    void *const from_peer = in_place ? scratch->address() : result;
    const int exchanged = exchange(from_peer, own.count, place(input, theirs.begin), theirs.count);
    return exchanged == kMpiSuccess ? reduce(result, from_peer, place(input, own.begin), own.count)
                                    : exchanged;
}

int PairAllreduce::exchange(void *into, size_t into_count, const void *from,
                            size_t from_count) const {
    const PeerMessages peer(call_.communicator, 1 - rank_);
    return peer.exchange({from, from_count}, {into, into_count}, call_.datatype);
}

/** Both ranks take the elements of rank 0 for the first operand: the order decides about the sign
 * of a zero, and which of two NaNs remains. `result` may be one of the operands. */
int PairAllreduce::reduce(void *result, const void *theirs, const void *own, size_t count) const {
    const void *const first = rank_ == 0 ? own : theirs;
    const void *const second = rank_ == 0 ? theirs : own;
    if (reduce_by_gpu(call_.operation, call_.datatype, result, first, second, count)) {
        return kMpiSuccess;
    }
    const size_t bytes = count * element_;
    const Scratch operand(bytes, second);
    if (!copy_or_report({{operand.address(), second, bytes}}, "reducing")) {
        return kMpiErrorOther;
    }
    const int reduced = mpi.reduce_local(first, operand.address(), static_cast<int>(count),
                                         call_.datatype, call_.operation);
    if (reduced == kMpiSuccess &&
        !copy_or_report({{result, operand.address(), bytes}}, "reducing")) {
        return kMpiErrorOther;
    }
    return reduced;
}

void *PairAllreduce::place(const void *buffer, size_t element) const {
    return static_cast<char *>(const_cast<void *>(buffer)) + element * element_;
}

}  // namespace gpushm::openmpi
