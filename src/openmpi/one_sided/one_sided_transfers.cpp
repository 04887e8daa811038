// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/one_sided/one_sided_transfers.hpp"

#include "openmpi/binding/gpu_memory.hpp"
#include "openmpi/binding/opal_datatype.hpp"
#include "openmpi/binding/open_mpi_progress.hpp"
#include "openmpi/datatypes/type_walk.hpp"
#include "openmpi/one_sided/equivalent_type.hpp"
#include "openmpi/one_sided/staged_transfer.hpp"
#include "openmpi/one_sided/window_selection.hpp"

#include <cstddef>
#include <string>
#include <utility>

namespace gpushm::openmpi {
namespace {

using Rank = int;
using Displacement = ptrdiff_t;  // MPI_Aint

struct Common {
    int (*wait)(void **request, void *status);
    int (*flush_local)(Rank target, void *window);
    void *int_type;
    void *replace;  // MPI_REPLACE
};

Common common;

// A GPU copies fewer or larger blocks one by one in less time than it takes to copy all of them to
// host memory and to pack them with the CPU.
constexpr size_t kFewBlocks = 8;
constexpr size_t kSmallBlock = 4096;

/** Whether the elements begin with more than `few` small blocks. */
bool is_scattered(const Operand &operand, size_t few) {
    const OpalDatatype type(operand.type);
    if (operand.count == 0 || !type.is_committed() || type.is_dense()) {
        return false;
    }
    BorrowedWalk walk;
    walk->start(operand.type, operand.count, nullptr);
    size_t blocks = 0;
    while (blocks <= few && walk->next(SIZE_MAX).length > 0) {
        ++blocks;
    }
    return blocks > few && walk->position() < blocks * kSmallBlock;
}

/** False: Open MPI refuses the arguments, or the target is MPI_PROC_NULL, which is negative, and no
 * buffer is accessed. */
bool is_proper(Rank target, const Operand &operand) {
    return target >= 0 && operand.count > 0 && operand.count <= PTRDIFF_MAX &&
           OpalDatatype(operand.type).is_committed();
}

/** Whether a put or get uses a copy of its local elements in host memory. A component that copies
 * with the CPU needs that. osc/ucx sends a message for each block, which costs a copy by the GPU
 * for each block at this end as well. */
bool wants_copy(void *window, const Operand &local, const Operand &remote) {
    return is_left_to_others(window) || is_scattered(local, kFewBlocks) ||
           is_scattered(remote, kFewBlocks);
}

/** Whether an accumulate uses a copy of its origin in host memory: the CPU reads it block by block.
 */
bool wants_copy_to_accumulate(void *window, const Operand &origin) {
    return is_left_to_others(window) || is_scattered(origin, 1);
}

/** When the program gets the request of an operation. */
enum class Requested { started, complete };

/** Ends a call without a request. */
int end_call(StagedTransfer &&transfer, Requested, Rank, Displacement, void *, int result) {
    if (result == kMpiSuccess && transfer.has_copies()) {
        StagedTransfer::keep(std::move(transfer));
    }
    return result;
}

enum class Direction { put, get };

template <Direction kDirection, typename Count, typename... Request>
int transfer(const void *origin, Count origin_count, void *origin_type, Rank target,
             Displacement displacement, Count target_count, void *target_type, void *window,
             Request... request);

/** Ends a call with a request. The results have to be in GPU memory when MPI_Wait returns, which
 * gpushm does not see. So an operation with copies completes here, and the program gets the request
 * of an operation that does nothing. MPI_PROC_NULL must not be flushed: Open MPI crashes. */
int end_call(StagedTransfer &&staged, Requested requested, Rank target, Displacement displacement,
             void *window, int result, void **request) {
    // Operations on the process's own memory are complete at once. A program that polls its memory
    // with them makes no other progress.
    make_progress();
    const bool is_over = target < 0 || (!staged.has_copies() && requested == Requested::started);
    if (result != kMpiSuccess || is_over) {
        return result;
    }
    result = common.wait(request, nullptr);
    result = result == kMpiSuccess ? common.flush_local(target, window) : result;
    if (result != kMpiSuccess) {
        return result;
    }
    staged.deliver();
    // In a dynamic window osc/ucx looks the displacement up even for no elements.
    return replaced_by<transfer<Direction::get, int, void **>>(
        nullptr, 0, common.int_type, target, displacement, 0, common.int_type, window, request);
}

/** In Open MPI 4.1 the request of osc/ucx may be complete before the put or get of MPI_REPLACE or
 * MPI_NO_OP is (ompi_osc_ucx_raccumulate() and ompi_osc_ucx_rget_accumulate(), osc_ucx_comm.c). */
Requested requested_of_accumulate(void *window) {
    return is_left_to_others(window) ? Requested::started : Requested::complete;
}

/** MPI_Put and MPI_Get, and their forms with a request. `Count` is int, or long long in the forms
 * with MPI_Count. `Request` is void ** or nothing. A get writes to `origin`. */
template <Direction kDirection, typename Count, typename... Request>
int transfer(const void *origin, Count origin_count, void *origin_type, Rank target,
             Displacement displacement, Count target_count, void *target_type, void *window,
             Request... request) {
    Operand local{origin, static_cast<size_t>(origin_count), origin_type};
    const Operand remote{nullptr, static_cast<size_t>(target_count), target_type};
    StagedTransfer staged(window, target);
    if (is_proper(target, local) && is_proper(target, remote) &&
        wants_copy(window, local, remote)) {
        if (kDirection == Direction::get) {
            staged.copy_destination(&local);
        } else if (!staged.copy_source(&local)) {
            return kMpiErrorOther;
        }
    }
    const int result = replaced_by<transfer<kDirection, Count, Request...>>(
        local.address, origin_count, origin_type, target, displacement, target_count, target_type,
        window, request...);
    return end_call(std::move(staged), Requested::started, target, displacement, window, result,
                    request...);
}

/** The operands of an accumulate in a form that osc/ucx handles correctly. Other components of Open
 * MPI get the operands unchanged. */
class Accumulated {
public:
    Accumulated(void *window, Rank target, const Operand &origin, const Operand &remote)
        : window_(window),
          is_proper_(target >= 0 && remote.count <= PTRDIFF_MAX),
          origin_(origin),
          remote_(remote) {}

    /** `in_host`: the origin has to be in host memory. False, reported to MPI: the GPU failed. */
    bool prepare(StagedTransfer *transfer, bool in_host = false) {
        if (!is_proper_) {
            return true;
        }
        // MPI_NO_OP has no origin.
        const bool has_origin = origin_.count > 0 && origin_.count <= PTRDIFF_MAX &&
                                OpalDatatype(origin_.type).is_committed();
        if (has_origin && (in_host || wants_copy_to_accumulate(window_, origin_)) &&
            !transfer->copy_source(&origin_)) {
            return false;
        }
        if (!is_left_to_others(window_)) {
            if (has_origin) {
                origin_type_.begin_at_address(&origin_);
            }
            remote_type_.make_one(&remote_);
        }
        return true;
    }

    const Operand &origin() const { return origin_; }
    const Operand &remote() const { return remote_; }

private:
    void *const window_;
    const bool is_proper_;
    Operand origin_;
    Operand remote_;
    EquivalentType origin_type_;
    EquivalentType remote_type_;
};

template <typename Count, typename... Request>
int accumulate(const void *origin, Count origin_count, void *origin_type, Rank target,
               Displacement displacement, Count target_count, void *target_type, void *operation,
               void *window, Request... request) {
    Accumulated operands(window, target, {origin, static_cast<size_t>(origin_count), origin_type},
                         {nullptr, static_cast<size_t>(target_count), target_type});
    StagedTransfer transfer(window, target);
    if (!operands.prepare(&transfer)) {
        return kMpiErrorOther;
    }
    const Operand &local = operands.origin();
    const Operand &remote = operands.remote();
    const int result = replaced_by<accumulate<Count, Request...>>(
        local.address, static_cast<Count>(local.count), local.type, target, displacement,
        static_cast<Count>(remote.count), remote.type, operation, window, request...);
    return end_call(std::move(transfer), requested_of_accumulate(window), target, displacement,
                    window, result, request...);
}

template <typename Count, typename... Request>
int get_accumulate(const void *origin, Count origin_count, void *origin_type, void *result_address,
                   Count result_count, void *result_type, Rank target, Displacement displacement,
                   Count target_count, void *target_type, void *operation, void *window,
                   Request... request) {
    const Operand remote_given{nullptr, static_cast<size_t>(target_count), target_type};
    Accumulated operands(window, target, {origin, static_cast<size_t>(origin_count), origin_type},
                         remote_given);
    Operand fetched{result_address, static_cast<size_t>(result_count), result_type};
    StagedTransfer transfer(window, target);
    // osc/ucx does this with a get and a put without a fence in between (osc_ucx_comm.c), and UCX
    // keeps their order only if both use one transport: so both buffers are in host memory then.
    const bool in_host = operation == common.replace;
    if (!operands.prepare(&transfer, in_host)) {
        return kMpiErrorOther;
    }
    if (is_proper(target, fetched) && is_proper(target, remote_given) &&
        (in_host || wants_copy(window, fetched, remote_given))) {
        transfer.copy_destination(&fetched);
    }
    const Operand &local = operands.origin();
    const Operand &remote = operands.remote();
    const int result = replaced_by<get_accumulate<Count, Request...>>(
        local.address, static_cast<Count>(local.count), local.type,
        const_cast<void *>(fetched.address), result_count, result_type, target, displacement,
        static_cast<Count>(remote.count), remote.type, operation, window, request...);
    return end_call(std::move(transfer), requested_of_accumulate(window), target, displacement,
                    window, result, request...);
}

/** `prefix` and `suffix` of the names: "R" of those with a request, "_c" of those with MPI_Count.
 */
template <typename Count, typename... Request>
void redirect_all(const MpiTarget &target, const char *prefix, const char *suffix) {
    const auto full = [&](std::string name) {
        if (*prefix == '\0') {
            name[0] = static_cast<char>(name[0] - 'a' + 'A');
        }
        return prefix + name + suffix;
    };
    target.redirect<transfer<Direction::put, Count, Request...>>(full("put"));
    target.redirect<transfer<Direction::get, Count, Request...>>(full("get"));
    target.redirect<accumulate<Count, Request...>>(full("accumulate"));
    target.redirect<get_accumulate<Count, Request...>>(full("get_accumulate"));
}

}  // namespace

void redirect_one_sided_transfers(const MpiTarget &target) {
    const OpenMpiLibrary &library = target.library;
    common.int_type = library.as_bound("ompi_mpi_int");
    common.replace = library.as_bound("ompi_mpi_op_replace");
    if (common.int_type == nullptr || !find_type_functions(library) ||
        !library.mpi("PMPI_Wait", &common.wait) ||
        !library.mpi("PMPI_Win_flush_local", &common.flush_local) || !find_progress(library)) {
        return;
    }
    redirect_all<int, void **>(target, "R", "");
    redirect_all<int>(target, "", "");
    redirect_all<long long, void **>(target, "R", "_c");
    redirect_all<long long>(target, "", "_c");
}

}  // namespace gpushm::openmpi
