// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/collectives/pair_allreduce.hpp"

#include "core/base/no_throw.hpp"
#include "core/copy/reachability.hpp"
#include "core/copy/reduced_arrivals.hpp"
#include "core/copy/reduction.hpp"
#include "core/memory/memory_query.hpp"
#include "core/pinning/device_buffer_pool.hpp"
#include "core/standby/gpu_sharing.hpp"
#include "openmpi/binding/opal_datatype.hpp"
#include "openmpi/collectives/agreement_attribute.hpp"
#include "openmpi/collectives/predefined_operations.hpp"
#include "openmpi/settings/mca_parameters.hpp"
#include "openmpi/settings/settings.hpp"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>

namespace gpushm::openmpi {
namespace {

// doc/decisions/openmpi-pair-allreduce.md has the times of both ways.
constexpr size_t kMinBytes = 16u << 10;       // below, host memory is quicker
constexpr size_t kMinHalved = 32u << 20;      // from here on, each rank reduces a half
constexpr size_t kMostTogether = 128u << 20;  // bounds the memory that MPI_IN_PLACE takes

struct Mpi {
    int (*reduce_local)(const void *in, void *inout, int count, Handle datatype, Handle operation);
    int (*call_errhandler)(Handle communicator, int code);
};
Mpi mpi;
bool is_prepared = false;

/** The bytes of an element; 0: MPI refuses the datatype. */
size_t element_of(Handle datatype) {
    const OpalDatatype type(datatype);
    return type.is_committed() ? type.size() : 0;
}

/** Whether the user has chosen how Open MPI runs collective operations. */
bool has_users_choice() {
    const std::set<std::string> in_file = parameters_in_users_file();
    for (const char *name :
         {"coll", "coll_tuned_use_dynamic_rules", "coll_ucc_enable", "coll_hcoll_enable"}) {
        if (getenv((std::string("OMPI_MCA_") + name).c_str()) != nullptr ||
            in_file.count(name) != 0) {
            return true;
        }
    }
    return false;
}

bool is_users_choice() {
    static const bool is_choice = has_users_choice();
    return is_choice;
}

}  // namespace

bool prepare_pair_allreduce(const OpenMpiLibrary &library) {
    is_prepared = library.mpi("PMPI_Reduce_local", &mpi.reduce_local) &&
                  library.mpi("PMPI_Comm_call_errhandler", &mpi.call_errhandler) &&
                  prepare_agreements(library);
    return is_prepared;
}

PairAllreduce::PairAllreduce(const AllreduceCall &call)
    : call_(call),
      element_(element_of(call.datatype)),
      count_(static_cast<size_t>(std::max(call.count, ptrdiff_t{0}))) {
    const size_t bytes = count_ * element_;
    Group group;
    if (bytes < kMinBytes || !is_prepared || !find_group(call.communicator, &group) ||
        group.size != 2) {
        return;
    }
    rank_ = group.rank;
    agreement_ = agreement_of(call.communicator, rank_);
    const auto prefers = [this] {
        return unless_short([this] { return is_preferred(); }, [] { return false; });
    };
    is_ours_ = agreement_ != nullptr && agreement_->begin(bytes, prefers);
    if (!is_ours_) {
        give_back_scratch();
    }
}

PairAllreduce::~PairAllreduce() {
    give_back_scratch();
}

void PairAllreduce::give_back_scratch() {
    if (scratch_ != nullptr) {
        DeviceBufferPool::instance().give_back(scratch_);
        scratch_ = nullptr;
    }
}

bool PairAllreduce::is_preferred() {
    const bool is_refused = is_in_place(call_.receive) || call_.send == call_.receive;
    const bool in_place = is_in_place(call_.send);
    return !is_refused && call_.count <= INT_MAX && !is_users_choice() &&
           count_ * element_ >= limits().host_collectives / (in_place ? 2 : 4) &&
           gpus_compute(call_.operation, call_.datatype) && is_for_gpu() &&
           (!in_place || take_scratch());
}

/** Whether reduce_by_gpu() computes it, and no other process uses the GPU. */
bool PairAllreduce::is_for_gpu() const {
    const size_t bytes = count_ * element_;
    const auto is_aligned = [this](const void *address) {
        return reinterpret_cast<uintptr_t>(address) % element_ == 0;
    };
    const MemoryInfo result = query_memory(call_.receive);
    const bool in_place = is_in_place(call_.send);
    return is_of_gpu(result, call_.receive, bytes) && is_aligned(call_.receive) &&
           gpu_can_reduce(result) &&
           (in_place || (is_aligned(call_.send) &&
                         is_of_same_gpu(result, query_memory(call_.send), call_.send, bytes))) &&
           GpuSharing::instance().others(result.device) == GpuSharing::Others::none;
}

bool PairAllreduce::take_scratch() {
    scratch_ =
        DeviceBufferPool::instance().take(most_reduced() * element_, query_memory(call_.receive));
    return scratch_ != nullptr;
}

void PairAllreduce::ended_elsewhere() {
    if (agreement_ != nullptr) {
        end_operation(agreement_);
    }
}

/** The most elements that this rank reduces at once. */
size_t PairAllreduce::most_reduced() const {
    const size_t together = std::min(count_, kMostTogether / element_);
    return together * element_ < kMinHalved ? together : together - together / 2;
}

int PairAllreduce::run() {
    int result = kMpiSuccess;
    for (size_t begin = 0; begin < count_ && result == kMpiSuccess;) {
        const Part part = {begin, std::min(count_ - begin, kMostTogether / element_)};
        result = part.count * element_ < kMinHalved ? reduce_part(part, part) : reduce_halves(part);
        begin += part.count;
    }
    if (result == kMpiSuccess) {
        return result;
    }
    scratch_ = nullptr;  // a receive may be posted still
    const int error = result > 0 ? result : kMpiErrorOther;
    mpi.call_errhandler(call_.communicator, error);
    return error;
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

/** Sends the peer what it reduces, and reduces this rank's part: as it arrives, where the operands
 * and the result are not the same memory. */
int PairAllreduce::reduce_part(const Part &own, const Part &theirs) const {
    void *const result = place(call_.receive, own.begin);
    const void *const input = is_in_place(call_.send) ? call_.receive : call_.send;
    const void *const numbers = place(input, own.begin);
    void *const from_peer = scratch_ != nullptr ? scratch_ : result;
    std::optional<ReducedArrival> arrival;
    if (scratch_ == nullptr) {
        arrival.emplace(result, reduction_on_arrival(call_.operation, call_.datatype, numbers,
                                                     rank_ == 0, own.count));
    }
    const int exchanged = exchange(from_peer, own.count, place(input, theirs.begin), theirs.count);
    const bool is_over = exchanged != kMpiSuccess || (arrival && arrival->is_reduced());
    return is_over ? exchanged : reduce(result, from_peer, numbers, own.count);
}

int PairAllreduce::exchange(void *into, size_t into_count, const void *from,
                            size_t from_count) const {
    const PeerMessages peer(call_.communicator, 1 - rank_);
    return peer.exchange({from, from_count}, {into, into_count}, call_.datatype);
}

/** Both ranks take the elements of rank 0 for the first operand: the order decides about the sign
 * of a zero, and which of two NaNs remains. `result` is one of the operands. */
int PairAllreduce::reduce(void *result, const void *theirs, const void *own, size_t count) const {
    const void *const first = rank_ == 0 ? own : theirs;
    const void *const second = rank_ == 0 ? theirs : own;
    return reduce_by_gpu(call_.operation, call_.datatype, result, first, second, count)
               ? kMpiSuccess
               : mpi.reduce_local(result == theirs ? own : theirs, result, static_cast<int>(count),
                                  call_.datatype, call_.operation);
}

void *PairAllreduce::place(const void *buffer, size_t element) const {
    return static_cast<char *>(const_cast<void *>(buffer)) + element * element_;
}

}  // namespace gpushm::openmpi
