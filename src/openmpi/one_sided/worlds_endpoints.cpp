// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/one_sided/worlds_endpoints.hpp"

#include "core/base/process.hpp"
#include "openmpi/binding/mpi_call.hpp"
#include "openmpi/binding/no_throw_calls.hpp"
#include "openmpi/one_sided/rma_functions.hpp"
#include "openmpi/one_sided/whole_keys.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gpushm::openmpi {
namespace {

constexpr int kUndefinedRank = -32766;  // MPI_UNDEFINED of Open MPI
constexpr int kExchangeFull = 0;        // OPAL_COMMON_UCX_WPMEM_ADDR_EXCHANGE_FULL: collective

/** Functions of Open MPI's pool of workers (opal/mca/common/ucx/common_ucx_wpool.h, from 5.0.0 on).
 * `memory` belongs to a window. fetch_endpoint() reads the entry of osc/ucx's table, or makes an
 * endpoint and writes it there. */
struct Pool {
    int (*create_memory)(void *context, void **base, size_t size, int type, void *exchange,
                         int exchange_mode, void *communicator, char **address, int *address_size,
                         void **memory);
    void (*free_memory)(void *memory);
    int (*fetch_endpoint)(void *memory, int target, ucp_ep_h *endpoint);
    void (*finalize)(void *pool);
};

struct Mpi {
    int (*initialized)(int *flag);
    int (*comm_group)(void *communicator, void **group);
    int (*group_size)(void *group, int *size);
    int (*group_translate)(void *group, int count, const int *ranks, void *other, int *other_ranks);
    int (*group_free)(void **group);
    int (*allgather)(const void *send, int send_count, void *send_type, void *receive,
                     int receive_count, void *receive_type, void *communicator);
    void *byte;
    void *world;
};

using ProcessId = uint64_t;
using Members = std::vector<ProcessId>;  // by rank; 0: in the MPI_COMM_WORLD of this process

struct State {
    Pool pool;
    Mpi mpi;
    std::mutex mutex;
    std::unordered_map<void *, Members> windows;  // by memory; only windows over several worlds
    std::unordered_map<ProcessId, ucp_ep_h> endpoints;  // null until osc/ucx has made one
};

State &state() {
    static State *const instance = new State;
    return *instance;
}

/** A group of MPI, freed at the end. */
class Group {
public:
    explicit Group(void *communicator) {
        valid_ = state().mpi.comm_group(communicator, &group_) == kMpiSuccess;
    }
    ~Group() {
        if (valid_) {
            state().mpi.group_free(&group_);
        }
    }
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;

    /** The ranks of this group's members in `other`. Empty: MPI failed. */
    std::vector<int> ranks_in(const Group &other) const {
        const Mpi &mpi = state().mpi;
        int size = 0;
        if (!valid_ || !other.valid_ || mpi.group_size(group_, &size) != kMpiSuccess) {
            return {};
        }
        std::vector<int> own(static_cast<size_t>(size));
        std::vector<int> others(own.size());
        std::iota(own.begin(), own.end(), 0);
        const int result =
            mpi.group_translate(group_, size, own.data(), other.group_, others.data());
        return result == kMpiSuccess ? others : std::vector<int>();
    }

private:
    void *group_ = nullptr;
    bool valid_ = false;
};

/** The members of a communicator. Empty: all are in one world. In a communicator over several
 * worlds every process finds a process of another world, so all processes take part in the exchange
 * or none. */
Members find_members(void *communicator) {
    const Mpi &mpi = state().mpi;
    int is_initialized = 0;
    if (mpi.initialized(&is_initialized) != kMpiSuccess || is_initialized == 0) {
        return {};  // there is no MPI_COMM_WORLD
    }
    const std::vector<int> world_ranks = Group(communicator).ranks_in(Group(mpi.world));
    bool has_others = false;
    for (const int rank : world_ranks) {
        has_others |= rank == kUndefinedRank;
    }
    Members members(has_others ? world_ranks.size() : 0);
    const ProcessId self = process_cookie().low | 1;
    if (has_others && mpi.allgather(&self, sizeof(self), mpi.byte, members.data(), sizeof(self),
                                    mpi.byte, communicator) != kMpiSuccess) {
        return {};
    }
    for (size_t rank = 0; rank < members.size(); ++rank) {
        members[rank] = world_ranks[rank] == kUndefinedRank ? members[rank] : 0;
    }
    return members;
}

int create_memory(void *context, void **base, size_t size, int type, void *exchange,
                  int exchange_mode, void *communicator, char **address, int *address_size,
                  void **memory) {
    const int result =
        state().pool.create_memory(context, base, size, type, exchange, exchange_mode, communicator,
                                   address, address_size, memory);
    if (result != kMpiSuccess || exchange_mode != kExchangeFull) {
        return result;
    }
    Members members = find_members(communicator);
    if (!members.empty()) {
        const std::lock_guard<std::mutex> lock(state().mutex);
        state().windows[*memory] = std::move(members);
    }
    return result;
}

void free_memory(void *memory) {
    {
        const std::lock_guard<std::mutex> lock(state().mutex);
        state().windows.erase(memory);
    }
    state().pool.free_memory(memory);
}

/** gpushm's entry for a process of another world. Null: a process of this world. Its address is
 * stable. */
ucp_ep_h *find_entry(void *memory, int target) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    const auto window = state().windows.find(memory);
    const ProcessId process =
        window != state().windows.end() ? window->second[static_cast<size_t>(target)] : 0;
    return process != 0 ? &state().endpoints[process] : nullptr;
}

/** Without `endpoint`, Open MPI has endpoints for each thread and window. */
int fetch_endpoint(void *memory, int target, ucp_ep_h *endpoint) {
    ucp_ep_h *const entry = endpoint != nullptr ? find_entry(memory, target) : nullptr;
    return state().pool.fetch_endpoint(memory, target, entry != nullptr ? entry : endpoint);
}

/** Open MPI destroys the worker, and its endpoints with it. */
void finalize(void *pool) {
    {
        const std::lock_guard<std::mutex> lock(state().mutex);
        state().endpoints.clear();
    }
    state().pool.finalize(pool);
}

bool find_functions(const OpenMpiLibrary &library) {
    Pool &pool = state().pool;
    Mpi &mpi = state().mpi;
    mpi.byte = library.as_bound("ompi_mpi_byte");
    mpi.world = library.as_bound("ompi_mpi_comm_world");
    return mpi.byte != nullptr && mpi.world != nullptr &&
           library.opal("opal_common_ucx_wpmem_create", &pool.create_memory) &&
           library.opal("opal_common_ucx_wpmem_free", &pool.free_memory) &&
           library.opal("opal_common_ucx_tlocal_fetch_spath", &pool.fetch_endpoint) &&
           library.opal("opal_common_ucx_wpool_finalize", &pool.finalize) &&
           library.mpi("PMPI_Initialized", &mpi.initialized) &&
           library.mpi("PMPI_Comm_group", &mpi.comm_group) &&
           library.mpi("PMPI_Group_size", &mpi.group_size) &&
           library.mpi("PMPI_Group_translate_ranks", &mpi.group_translate) &&
           library.mpi("PMPI_Group_free", &mpi.group_free) &&
           library.mpi("PMPI_Allgather", &mpi.allgather);
}

}  // namespace

void redirect_endpoints_of_worlds(const OpenMpiLibrary &library, CallRedirection *redirection) {
    if (!find_functions(library)) {
        return;
    }
    const auto &windows = libraries_of_windows();
    redirect_call<create_memory, OpalFailure>(redirection, "opal_common_ucx_wpmem_create", windows);
    redirect_call<free_memory, OpalFailure>(redirection, "opal_common_ucx_wpmem_free", windows);
    redirect_call<fetch_endpoint, OpalFailure>(redirection, "opal_common_ucx_tlocal_fetch_spath",
                                               windows);
    redirect_call<finalize, OpalFailure>(redirection, "opal_common_ucx_wpool_finalize", windows);
}

}  // namespace gpushm::openmpi
