// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/one_sided/one_sided_calls.hpp"

#include "core/base/log.hpp"
#include "openmpi/binding/element_types.hpp"
#include "openmpi/binding/gpu_memory.hpp"
#include "openmpi/binding/opal_datatype.hpp"
#include "openmpi/binding/open_mpi_progress.hpp"
#include "openmpi/binding/ucp_functions.hpp"
#include "openmpi/one_sided/one_sided_transfers.hpp"
#include "openmpi/one_sided/staged_transfer.hpp"
#include "openmpi/one_sided/window_selection.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <mutex>
#include <vector>

namespace gpushm::openmpi {
namespace {

using Rank = int;
using Displacement = ptrdiff_t;  // MPI_Aint

constexpr size_t kMaxElementBytes = 64;

/** An operation in progress. Open MPI reads and writes these elements until it is complete. */
struct Pending {
    void *window;
    Rank target;
    void *result;  // in GPU memory; null: in host memory, which Open MPI writes
    size_t length;
    uint64_t posted = 0;  // counts operations, from 1 on; 0: Open MPI has not accepted it yet
    alignas(16) unsigned char origin[kMaxElementBytes];
    alignas(16) unsigned char compare[kMaxElementBytes];
    alignas(16) unsigned char fetched[kMaxElementBytes];
};

struct State {
    int (*get_accumulate)(const void *origin, int origin_count, void *origin_type, void *result,
                          int result_count, void *result_type, Rank target,
                          Displacement displacement, int target_count, void *target_type,
                          void *operation, void *window);
    void *sum;               // MPI_SUM
    bool loses_small_swaps;  // osc/ucx does, of Open MPI 4.1
    std::mutex mutex;        // also held while results are copied, so that MPI_Win_flush of another
                             // thread returns after that
    std::list<Pending> pending;
    uint64_t posts = 0;
};

State &state() {
    static State *const instance = new State;
    return *instance;
}

constexpr char kOperation[] = "an atomic one-sided operation";

/** `element` if it is in host memory, otherwise its copy in `room`. Null: the GPU failed. */
const void *in_host_memory(const void *element, unsigned char *room, size_t length) {
    if (!is_gpu_memory(element)) {
        return element;
    }
    return copy_or_report({{room, element, length}}, kOperation) ? room : nullptr;
}

/** Adds the record of an operation that is being started. The record stays until the operation is
 * complete; the destructor removes it if the operation was not posted. */
class Starting {
public:
    Starting(void *window, Rank target, void *datatype, void *result) {
        const std::lock_guard<std::mutex> lock(state().mutex);
        pending_ = state().pending.emplace(state().pending.end());
        pending_->window = window;
        pending_->target = target;
        pending_->result = is_gpu_memory(result) ? result : nullptr;
        pending_->length = static_cast<size_t>(OpalDatatype(datatype).extent());
    }
    ~Starting() {
        if (!is_posted_) {
            const std::lock_guard<std::mutex> lock(state().mutex);
            state().pending.erase(pending_);
        }
    }
    Starting(const Starting &) = delete;
    Starting &operator=(const Starting &) = delete;

    Pending &operator*() const { return *pending_; }

    /** Takes and returns MPI's result. After a success another thread may remove the record. */
    int posted(int result) {
        const std::lock_guard<std::mutex> lock(state().mutex);
        is_posted_ = result == kMpiSuccess;
        pending_->posted = is_posted_ ? ++state().posts : 0;
        return result;
    }

private:
    std::list<Pending>::iterator pending_;
    bool is_posted_ = false;
};

/** Delivers the results of the operations on `target`, or on all targets for kEveryTarget, among
 * the first `posts`. The caller knows that these are complete; later ones of other threads may not
 * be. */
void deliver(void *window, Rank target, uint64_t posts) {
    State &known = state();
    bool delivered = true;
    {
        const std::lock_guard<std::mutex> lock(known.mutex);
        std::vector<CopyPiece> pieces;
        std::list<Pending> complete;
        for (auto next = known.pending.begin(); next != known.pending.end();) {
            const auto pending = next++;
            if (pending->window != window || pending->posted == 0 || pending->posted > posts ||
                (target != kEveryTarget && pending->target != target)) {
                continue;
            }
            if (pending->result != nullptr) {
                pieces.push_back({pending->result, pending->fetched, pending->length});
            }
            complete.splice(complete.end(), known.pending, pending);
        }
        delivered = copy_pieces(pieces) == Status::ok;
    }
    if (!delivered) {
        report_lost(kOperation);  // MPI's error handler may call MPI
    }
}

/** False for MPI_PROC_NULL, which is negative: the operation accesses no buffer. */
bool can_serve(Rank target, void *datatype) {
    const OpalDatatype type(datatype);
    return target >= 0 && type.is_committed() && type.extent() > 0 &&
           static_cast<size_t>(type.extent()) <= kMaxElementBytes;
}

/** UCX's atomic operations are for integers of 4 and 8 bytes. False if nothing is known of it. */
bool has_size_unknown_to_ucx(OpalDatatype type) {
    return type.is_committed() && type.size() != 4 && type.size() != 8;
}

/** Whether UCX's atomic operations can do it. */
bool is_atomic_of_ucx(void *datatype, void *operation) {
    if (has_size_unknown_to_ucx(OpalDatatype(datatype))) {
        return false;
    }
    const auto numbers = numbers_to_reduce(ReductionOperation::sum, datatype);
    return operation != state().sum || !numbers ||
           (numbers->type != ElementType::float32 && numbers->type != ElementType::float64);
}

int fetch_and_op(const void *origin, void *result, void *datatype, Rank target,
                 Displacement displacement, void *operation, void *window);

/** Uses MPI_Get_accumulate for other elements, which osc/ucx of Open MPI 4.1 takes for integers in
 * MPI_Fetch_and_op. */
int fetch(const void *origin, void *result, void *datatype, Rank target, Displacement displacement,
          void *operation, void *window) {
    return is_left_to_others(window) || is_atomic_of_ucx(datatype, operation)
               ? replaced_by<fetch_and_op>(origin, result, datatype, target, displacement,
                                           operation, window)
               : state().get_accumulate(origin, 1, datatype, result, 1, datatype, target,
                                        displacement, 1, datatype, operation, window);
}

int fetch_and_op(const void *origin, void *result, void *datatype, Rank target,
                 Displacement displacement, void *operation, void *window) {
    if ((!is_gpu_memory(origin) && !is_gpu_memory(result)) || !can_serve(target, datatype)) {
        return fetch(origin, result, datatype, target, displacement, operation, window);
    }
    Starting starting(window, target, datatype, result);
    Pending &pending = *starting;
    // Null is permitted with MPI_NO_OP, which reads no element.
    const void *element =
        origin != nullptr ? in_host_memory(origin, pending.origin, pending.length) : origin;
    if (element == nullptr && origin != nullptr) {
        return kMpiErrorOther;
    }
    return starting.posted(fetch(element, pending.result != nullptr ? pending.fetched : result,
                                 datatype, target, displacement, operation, window));
}

/** Open MPI 4.1 does not notice that UCX refuses a swap. The result is then wrong, and the window
 * is not changed. */
bool is_lost_by_open_mpi(void *datatype, Rank target, void *window) {
    return state().loses_small_swaps && target >= 0 && !is_left_to_others(window) &&
           has_size_unknown_to_ucx(OpalDatatype(datatype));
}

int compare_and_swap(const void *origin, const void *compare, void *result, void *datatype,
                     Rank target, Displacement displacement, void *window) {
    if (is_lost_by_open_mpi(datatype, target, window)) {
        GPUSHM_LOG(error,
                   "MPI_Compare_and_swap of %zu bytes: with windows of GPU memory, Open MPI 4.1 "
                   "swaps elements of 4 and 8 bytes only: use a type such as MPI_INT, or Open MPI "
                   "5.0",
                   OpalDatatype(datatype).size());
        return kMpiErrorOther;
    }
    if ((!is_gpu_memory(origin) && !is_gpu_memory(compare) && !is_gpu_memory(result)) ||
        !can_serve(target, datatype)) {
        return replaced_by<compare_and_swap>(origin, compare, result, datatype, target,
                                             displacement, window);
    }
    Starting starting(window, target, datatype, result);
    Pending &pending = *starting;
    const void *element = in_host_memory(origin, pending.origin, pending.length);
    const void *expected = in_host_memory(compare, pending.compare, pending.length);
    if (element == nullptr || expected == nullptr) {
        return kMpiErrorOther;
    }
    return starting.posted(replaced_by<compare_and_swap>(
        element, expected, pending.result != nullptr ? pending.fetched : result, datatype, target,
        displacement, window));
}

// ---------------------------------------------------------------- calls that complete operations

uint64_t posts() {
    const std::lock_guard<std::mutex> lock(state().mutex);
    return state().posts;
}

/** A call that completes the operations before it. Programs poll their own memory with such calls,
 * which osc/ucx ends at once if it has nothing to complete. So this makes progress, which
 * operations of other processes on this one may need. */
template <typename Function, typename... Arguments>
int completing(void *window, Rank target, Function function, Arguments... arguments) {
    const uint64_t before = posts();
    const uint64_t staged_before = staged_transfers();
    make_progress();
    const int result = function(arguments...);
    if (result == kMpiSuccess) {
        deliver(window, target, before);
        deliver_staged(window, target, staged_before);
    }
    return result;
}

int fence(int assertion, void *window) {
    return completing(window, kEveryTarget, replaced_by<fence>, assertion, window);
}

/** The calls that complete the operations on one target. */
enum class OnTarget { unlock, flush, flush_local };

template <OnTarget kCall>
int complete_on_target(Rank target, void *window) {
    return completing(window, target, replaced_by<complete_on_target<kCall>>, target, window);
}

/** The calls that complete the operations on all targets. */
enum class OnAll { complete, unlock, flush, flush_local };

template <OnAll kCall>
int complete_on_all(void *window) {
    return completing(window, kEveryTarget, replaced_by<complete_on_all<kCall>>, window);
}

int free_window(void **window) {
    forget_window(*window);  // before another window gets this handle
    return completing(*window, kEveryTarget, replaced_by<free_window>, window);
}
int sync_window(void *window) {
    make_progress();
    return replaced_by<sync_window>(window);
}

// ---------------------------------------------------------------- UCP's protocols for windows

bool is_set(const char *variable) {
    return getenv(variable) != nullptr;
}

/** Replaces ucp_config_read in osc/ucx, which creates a UCP context for windows. Selects UCP's
 * second generation of protocols: the first one, the default before UCX 1.16, takes every local
 * buffer of put and get for host memory (1.13, src/ucp/rma/rma_send.c). */
ucs_status_t read_config_of_windows(const char *prefix, const char *file, ucp_config_t **config) {
    void *const library = open_loaded_libucp();
    decltype(&ucp_config_read) read;
    decltype(&ucp_config_modify) modify;
    decltype(&ucp_get_version) get_version;
    if (!find_function(library, "ucp_config_read", &read) ||
        !find_function(library, "ucp_config_modify", &modify) ||
        !find_function(library, "ucp_get_version", &get_version)) {
        return UCS_ERR_UNSUPPORTED;
    }
    const ucs_status_t status = read(prefix, file, config);
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    get_version(&major, &minor, &release);
    if (status == UCS_OK && major == 1 && minor < 16 && !is_set("UCX_PROTO_ENABLE") &&
        !is_set("UCX_MPI_PROTO_ENABLE")) {
        modify(*config, "PROTO_ENABLE", "y");
    }
    return status;
}

/** Only if osc/ucx is in a file of its own, as in Open MPI 4.1 of Debian and Ubuntu, which have
 * such a UCX. */
void redirect_config_of_windows(CallRedirection *redirection) {
    redirect_call<read_config_of_windows, UcpFailure>(redirection, "ucp_config_read",
                                                      {"mca_osc_ucx.so"});
}

}  // namespace

void redirect_one_sided_calls(const MpiTarget &target) {
    const bool completions =
        find_progress(target.library) && target.redirect<sync_window>("Win_sync") &&
        target.redirect<fence>("Win_fence") &&
        target.redirect<complete_on_all<OnAll::complete>>("Win_complete") &&
        target.redirect<complete_on_target<OnTarget::unlock>>("Win_unlock") &&
        target.redirect<complete_on_all<OnAll::unlock>>("Win_unlock_all") &&
        target.redirect<complete_on_target<OnTarget::flush>>("Win_flush") &&
        target.redirect<complete_on_all<OnAll::flush>>("Win_flush_all") &&
        target.redirect<complete_on_target<OnTarget::flush_local>>("Win_flush_local") &&
        target.redirect<complete_on_all<OnAll::flush_local>>("Win_flush_local_all") &&
        target.redirect<free_window>("Win_free");
    redirect_config_of_windows(target.redirection);
    state().sum = target.library.as_bound("ompi_mpi_op_sum");
    state().loses_small_swaps = target.library.version()[0] == '4';
    if (completions && target.library.mpi("PMPI_Get_accumulate", &state().get_accumulate)) {
        target.redirect<fetch_and_op>("Fetch_and_op");
        target.redirect<compare_and_swap>("Compare_and_swap");
        redirect_one_sided_transfers(target);
    }
}

}  // namespace gpushm::openmpi
