// SPDX-License-Identifier: BSD-3-Clause
// Open MPI's algorithms (ompi/mca/coll/base/coll_base_allreduce.c and others) allocate temporary
// receive buffers with malloc(). They access them only with messages and with functions that gpushm
// replaces (convertor_calls.cpp, predefined_operations.cpp, user_operations.cpp), so GPU memory may
// stand in.
#include "openmpi/collectives/collective_calls.hpp"

#include "core/base/log.hpp"
#include "core/copy/reduction.hpp"
#include "core/memory/memory_query.hpp"
#include "core/pinning/device_buffer_pool.hpp"
#include "openmpi/binding/gpu_memory.hpp"
#include "openmpi/collectives/agreement_attribute.hpp"
#include "openmpi/collectives/nonblocking_collectives.hpp"
#include "openmpi/collectives/pair_allreduce.hpp"
#include "openmpi/collectives/predefined_operations.hpp"
#include "openmpi/collectives/small_collectives.hpp"
#include "openmpi/settings/settings.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

namespace gpushm::openmpi {
namespace {

// Smaller allocations during a reduction stay in host memory. Lists have at most 24 bytes a rank
// (MPI_Status).
constexpr size_t kMinBytes = 8u << 10;
constexpr size_t kBytesOfRank = 64;

/** The reduction that this thread is in. MPI gives malloc() no context, so the thread has it. Costs
 * nothing until Open MPI allocates a large block. */
class CurrentReduction {
public:
    /** Either buffer may be MPI_IN_PLACE, or an invalid address on other ranks than the root. */
    CurrentReduction(const void *send, const void *receive, const void *datatype,
                     const void *operation, Handle communicator)
        : outer_(current_),
          send_(send),
          receive_(receive),
          datatype_(datatype),
          operation_(operation),
          communicator_(communicator) {
        current_ = this;
    }
    ~CurrentReduction() { current_ = outer_; }
    CurrentReduction(const CurrentReduction &) = delete;
    CurrentReduction &operator=(const CurrentReduction &) = delete;

    static const CurrentReduction *get() { return current_; }

    /** GPU memory for a temporary buffer. Null: host memory is better, there is no GPU memory, or
     * the allocation may be a list. */
    void *take(size_t bytes) const {
        Group group;
        if (bytes < kMinBytes || !find_group(communicator_, &group) ||
            bytes < kBytesOfRank * static_cast<size_t>(group.size)) {
            return nullptr;
        }
        MemoryInfo info = query_memory(receive_);
        if (info.kind != MemoryKind::device) {
            info = query_memory(send_);
        }
        // Host memory is better if the CPU computes the reduction.
        return gpus_compute(operation_, datatype_) && gpu_can_reduce(info)
                   ? DeviceBufferPool::instance().take(bytes, info)
                   : nullptr;
    }

private:
    static inline thread_local const CurrentReduction *current_ = nullptr;

    const CurrentReduction *outer_;  // a user's operation in this reduction may call MPI
    const void *send_;
    const void *receive_;
    const void *datatype_;
    const void *operation_;
    Handle communicator_;
};

void *allocate(size_t bytes) {
    const CurrentReduction *reduction = CurrentReduction::get();
    void *block = reduction != nullptr && limits().host_collectives != kUnlimited
                      ? reduction->take(bytes)
                      : nullptr;
    return block != nullptr ? block : malloc(bytes);
}

void release(void *address) {
    DeviceBufferPool &blocks = DeviceBufferPool::instance();
    if (!blocks.any_taken() || !blocks.give_back(address)) {
        free(address);
    }
}

/** MPI's result, or an error if a GPU has failed. */
template <typename Call>
int checked(Call call) {
    const FailureWatch watch;
    const int result = call();
    return result == kMpiSuccess && watch.failed() ? kMpiErrorOther : result;
}

// ---------------------------------------------------------------- reductions

enum class Name {
    allreduce,
    reduce,
    reduce_scatter,
    reduce_scatter_block,
    scan,
    exscan,
    allgather,
    alltoall
};

using Requests = void **;
using Large = ptrdiff_t;  // MPI_Count

/** The numbers of elements of a rank. */
struct Share {
    size_t input;
    size_t result;  // 0: MPI writes nothing to the receive buffer
};

/** `count` is the parameter of the call, a list for MPI_Reduce_scatter. `root` is for MPI_Reduce.
 */
template <Name kName, typename Count>
Share share_of(const Group &group, Count count, int root) {
    if constexpr (kName == Name::reduce_scatter) {
        Share share = {0, count != nullptr ? small_count(count[group.rank]) : 0};
        for (int rank = 0; count != nullptr && rank < group.size; ++rank) {
            share.input += small_count(count[rank]);
        }
        return share;
    } else {
        const size_t elements = small_count(count);
        const bool has_result = (kName != Name::reduce || group.rank == root) &&
                                (kName != Name::exscan || group.rank != 0);
        const size_t blocks =
            kName == Name::reduce_scatter_block ? static_cast<size_t>(group.size) : 1;
        return {elements * blocks, has_result ? elements : 0};
    }
}

/** The parameters at the end of a call, from the root or the communicator on. */
struct LastParameters {
    explicit LastParameters(Handle of_communicator) : communicator(of_communicator) {}
    LastParameters(Handle of_communicator, Requests of_call)
        : communicator(of_communicator), request(of_call) {}
    LastParameters(Handle of_communicator, Handle /*info*/, Requests of_call)
        : communicator(of_communicator), request(of_call), is_persistent(true) {}
    template <typename... Others>
    explicit LastParameters(int root_rank, Others... others) : LastParameters(others...) {
        root = root_rank;
    }
    /** Null: temporary buffers stay in host memory. libnbc never frees those of persistent
     * operations. */
    Handle communicator_of_temporaries() const { return is_persistent ? nullptr : communicator; }

    int root = 0;
    Handle communicator;
    Requests request = nullptr;  // null: the call is a blocking one
    bool is_persistent = false;
};

/** Whether the call may run in host memory. */
bool can_replace(const LastParameters &last) {
    return last.request == nullptr || can_watch_requests();
}

/** `run(send, receive)` is MPI's function. */
template <typename Run>
int replace_buffers(const OwnBuffers &own, const LastParameters &last, Run run) {
    if (last.is_persistent) {
        return prepare_in_host_memory(own, last.communicator, last.request, run);
    }
    return last.request == nullptr
               ? run_by_host_memory(own, last.communicator, run)
               : start_by_host_memory(own, last.communicator, last.request, run);
}

/** Whether the reduction runs in host memory; `*own` then describes its buffers. */
template <Name kName, typename Count>
bool is_small_reduction(const void *send, void *receive, Count count, Handle datatype,
                        const LastParameters &last, OwnBuffers *own) {
    Group group;
    if (!find_group(last.communicator, &group)) {
        return false;
    }
    const size_t element = small_element(datatype);
    const Share share = share_of<kName>(group, count, last.root);
    const size_t input = share.input * element;
    const bool in_place = is_in_place(send);
    *own = {send, receive, in_place ? 0 : input, 0, in_place ? input : 0, share.result * element};
    return is_small_reduction(*own, group);
}

/** Replaces a reduction of MPI. */
template <Name kName, typename Count, typename... Last>
struct Reduction {
    static int call(const void *send, void *receive, Count count, Handle datatype, Handle operation,
                    Last... last) {
        if constexpr (kName == Name::allreduce && sizeof...(Last) == 1) {
            PairAllreduce pair({send, receive, count, datatype, operation, last...});
            if (pair.is_ours()) {
                return checked([&] { return pair.run(); });
            }
            const int result = call_mpi(send, receive, count, datatype, operation, last...);
            pair.ended_elsewhere();
            return result;
        } else {
            return call_mpi(send, receive, count, datatype, operation, last...);
        }
    }

private:
    static int call_mpi(const void *send, void *receive, Count count, Handle datatype,
                        Handle operation, Last... last) {
        if (!concern_gpu(send, receive)) {
            return checked([&] {
                return replaced_by<&Reduction::call>(send, receive, count, datatype, operation,
                                                     last...);
            });
        }
        const LastParameters parameters(last...);
        const auto run = [&](const void *from, void *to) {
            const CurrentReduction current(from, to, datatype, operation,
                                           parameters.communicator_of_temporaries());
            return replaced_by<&Reduction::call>(from, to, count, datatype, operation, last...);
        };
        OwnBuffers own;
        const bool replaced =
            is_small_reduction<kName>(send, receive, count, datatype, parameters, &own) &&
            can_replace(parameters);
        return checked(
            [&] { return replaced ? replace_buffers(own, parameters, run) : run(send, receive); });
    }
};

// ---------------------------------------------------------------- exchanges

/** Replaces MPI_Allgather or MPI_Alltoall, of which only small ones change. `Last`: the parameters
 * behind the communicator, none in a blocking one. */
template <Name kName, typename Count, typename... Last>
struct Exchange {
    static int call(const void *send, Count send_count, Handle send_type, void *receive,
                    Count receive_count, Handle receive_type, Handle communicator, Last... others) {
        const LastParameters last(communicator, others...);
        const auto run = [&](const void *from, void *to) {
            return replaced_by<&Exchange::call>(from, send_count, send_type, to, receive_count,
                                                receive_type, communicator, others...);
        };
        Group group;
        if (!concern_gpu(send, receive) || !find_group(communicator, &group)) {
            return checked([&] { return run(send, receive); });
        }
        // In place, the first count and type have no meaning. Elements with gaps run in GPU memory.
        const size_t to_rank =
            is_in_place(send) ? 0 : small_count(send_count) * small_element(send_type);
        const size_t from_rank = small_count(receive_count) * small_element(receive_type);
        const OwnBuffers own = own_buffers(group, send, to_rank, receive, from_rank);
        const bool replaced = is_small(own, group) && can_replace(last);
        return checked(
            [&] { return replaced ? replace_buffers(own, last, run) : run(send, receive); });
    }

private:
    static bool is_small(const OwnBuffers &own, const Group &group) {
        return kName == Name::allgather ? is_small_allgather(own, group)
                                        : is_small_alltoall(own, group);
    }
    /** `to_rank` and `from_rank`: bytes for one rank, and from one rank. */
    static OwnBuffers own_buffers(const Group &group, const void *send, size_t to_rank,
                                  void *receive, size_t from_rank) {
        const auto rank = static_cast<size_t>(group.rank);
        const auto ranks = static_cast<size_t>(group.size);
        const bool in_place = is_in_place(send);
        const size_t all = from_rank * ranks;
        if constexpr (kName == Name::allgather) {
            return {send, receive, to_rank, from_rank * rank, in_place ? from_rank : 0, all};
        } else {
            return {send, receive, to_rank * ranks, 0, in_place ? all : 0, all};
        }
    }
};

/** Replaces MPI_Scatter, of which only a small one changes. */
template <typename Count, typename... Last>
struct Scatter {
    static int call(const void *send, Count send_count, Handle send_type, void *receive,
                    Count receive_count, Handle receive_type, int root, Handle communicator,
                    Last... others) {
        const LastParameters last(communicator, others...);
        const auto run = [&](const void *from, void *to) {
            return replaced_by<&Scatter::call>(from, send_count, send_type, to, receive_count,
                                               receive_type, root, communicator, others...);
        };
        Group group;
        if (!concern_gpu(send, receive) || !find_group(communicator, &group)) {
            return checked([&] { return run(send, receive); });
        }
        OwnBuffers own = {send, receive, 0, 0, 0, 0};
        if (!is_in_place(receive)) {
            own.result_bytes = small_count(receive_count) * small_element(receive_type);
        }
        size_t all = own.result_bytes * static_cast<size_t>(group.size);
        if (group.rank == root) {  // elsewhere the first buffer, count and type have no meaning
            all = small_count(send_count) * small_element(send_type) *
                  static_cast<size_t>(group.size);
            own.send_bytes = all;
        }
        const bool replaced = is_small_scatter(own, all) && can_replace(last);
        return checked(
            [&] { return replaced ? replace_buffers(own, last, run) : run(send, receive); });
    }
};

// ---------------------------------------------------------------- redirection

std::string nonblocking(const std::string &name) {
    return std::string("I") + static_cast<char>(tolower(name[0])) + name.substr(1);
}

int free_communicator(Handle *communicator) {
    const CommunicatorEnd end(communicator != nullptr ? *communicator : nullptr);
    return replaced_by<&free_communicator>(communicator);
}

int disconnect_communicator(Handle *communicator) {
    const CommunicatorEnd end(communicator != nullptr ? *communicator : nullptr);
    return replaced_by<&disconnect_communicator>(communicator);
}

/** Redirects a function in its forms: blocking, nonblocking and, in MPI 4, persistent; the same
 * three with large counts are MPI 4's as well. */
struct Target : MpiTarget {
    template <Name kName, typename Count, typename LargeCount, typename... Last>
    void redirect_reductions(const std::string &name) const {
        redirect_forms_of_reduction<kName, Count, Last...>(name, "");
        redirect_forms_of_reduction<kName, LargeCount, Last...>(name, "_c");
    }

    template <Name kName>
    void redirect_exchanges(const std::string &name) const {
        redirect_forms_of_exchange<kName, int>(name, "");
        redirect_forms_of_exchange<kName, Large>(name, "_c");
    }

    void redirect_scatter() const {
        redirect_forms_of_scatter<int>("");
        redirect_forms_of_scatter<Large>("_c");
    }

private:
    template <Name kName, typename Count, typename... Last>
    void redirect_forms_of_reduction(const std::string &name, const std::string &suffix) const {
        redirect<&Reduction<kName, Count, Last...>::call>(name + suffix);
        redirect<&Reduction<kName, Count, Last..., Requests>::call>(nonblocking(name) + suffix);
        redirect<&Reduction<kName, Count, Last..., Handle, Requests>::call>(name + "_init" +
                                                                            suffix);
    }
    template <Name kName, typename Count>
    void redirect_forms_of_exchange(const std::string &name, const std::string &suffix) const {
        redirect<&Exchange<kName, Count>::call>(name + suffix);
        redirect<&Exchange<kName, Count, Requests>::call>(nonblocking(name) + suffix);
        redirect<&Exchange<kName, Count, Handle, Requests>::call>(name + "_init" + suffix);
    }
    template <typename Count>
    void redirect_forms_of_scatter(const std::string &suffix) const {
        redirect<&Scatter<Count>::call>("Scatter" + suffix);
        redirect<&Scatter<Count, Requests>::call>("Iscatter" + suffix);
        redirect<&Scatter<Count, Handle, Requests>::call>("Scatter_init" + suffix);
    }
};

void prepare_pairs(const MpiTarget &target) {
    if (prepare_pair_allreduce(target.library)) {
        target.redirect<&free_communicator>("Comm_free");
        target.redirect<&disconnect_communicator>("Comm_disconnect");
    } else {
        GPUSHM_LOG(debug, "Open MPI %s runs all of its MPI_Allreduce itself",
                   target.library.version());
    }
}

}  // namespace

void redirect_collective_calls(const MpiTarget &given) {
    if (!prepare_small_collectives(given.library)) {
        return;
    }
    prepare_nonblocking_collectives(given.library);
    prepare_pairs(given);
    const Target target = {given};
    target.redirect_reductions<Name::allreduce, int, Large, Handle>("Allreduce");
    target.redirect_reductions<Name::reduce, int, Large, int, Handle>("Reduce");
    target.redirect_reductions<Name::reduce_scatter, const int *, const Large *, Handle>(
        "Reduce_scatter");
    target.redirect_reductions<Name::reduce_scatter_block, int, Large, Handle>(
        "Reduce_scatter_block");
    target.redirect_reductions<Name::scan, int, Large, Handle>("Scan");
    target.redirect_reductions<Name::exscan, int, Large, Handle>("Exscan");
    target.redirect_exchanges<Name::allgather>("Allgather");
    target.redirect_exchanges<Name::alltoall>("Alltoall");
    target.redirect_scatter();
    // Open MPI 6.0 has its collectives in libopen_mpi; some are components in files of their own.
    const std::vector<std::string> collectives = {"libmpi.so", "libopen_mpi.so", "mca_coll_"};
    given.redirection->add("malloc", reinterpret_cast<void *>(&allocate), collectives);
    given.redirection->add("free", reinterpret_cast<void *>(&release), collectives);
}

}  // namespace gpushm::openmpi
