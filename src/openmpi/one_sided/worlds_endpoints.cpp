// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/one_sided/worlds_endpoints.hpp"

#include "core/base/process.hpp"
#include "openmpi/binding/mpi_world.hpp"
#include "openmpi/one_sided/window_libraries.hpp"

#include <ucp/api/ucp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gpushm::openmpi {
namespace {

constexpr int kExchangeFull = 0;  // OPAL_COMMON_UCX_WPMEM_ADDR_EXCHANGE_FULL: collective

using ProcessId = uint64_t;
using Members = std::vector<ProcessId>;  // by rank; 0: in the MPI_COMM_WORLD of this process

using Allgather = int (*)(const void *send, int send_count, void *send_type, void *receive,
                          int receive_count, void *receive_type, void *communicator);

struct State {
    Allgather allgather;
    void *byte;
    std::mutex mutex;
    std::unordered_map<void *, Members> windows;  // by memory; only windows over several worlds
    std::unordered_map<ProcessId, ucp_ep_h> endpoints;  // null until osc/ucx has made one
};

State &state() {
    static State *const instance = new State;
    return *instance;
}

/** The members of a communicator. Empty: all are in one world. In a communicator over several
 * worlds every process finds a process of another world, so all processes take part in the exchange
 * or none. */
Members find_members(void *communicator) {
    const std::vector<int> world_ranks =
        has_world() ? ranks_in_world_of_communicator(communicator) : std::vector<int>();
    const bool has_others =
        std::find(world_ranks.begin(), world_ranks.end(), kUndefinedRank) != world_ranks.end();
    Members members(has_others ? world_ranks.size() : 0);
    const ProcessId self = process_cookie().low | 1;
    void *const byte = state().byte;
    if (has_others && state().allgather(&self, sizeof(self), byte, members.data(), sizeof(self),
                                        byte, communicator) != kMpiSuccess) {
        return {};
    }
    for (size_t rank = 0; rank < members.size(); ++rank) {
        members[rank] = world_ranks[rank] == kUndefinedRank ? members[rank] : 0;
    }
    return members;
}

// Replacements of functions of Open MPI's pool of workers (opal/mca/common/ucx/common_ucx_wpool.h,
// from 5.0.0 on). `memory` belongs to a window.

int create_memory(void *context, void **base, size_t size, int type, void *exchange,
                  int exchange_mode, void *communicator, char **address, int *address_size,
                  void **memory) {
    const int result =
        replaced_by<create_memory>(context, base, size, type, exchange, exchange_mode, communicator,
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
    replaced_by<free_memory>(memory);
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

/** The original reads the entry of osc/ucx's table, or makes an endpoint and writes it there.
 * Without `endpoint`, Open MPI has endpoints for each thread and window. */
int fetch_endpoint(void *memory, int target, ucp_ep_h *endpoint) {
    ucp_ep_h *const entry = endpoint != nullptr ? find_entry(memory, target) : nullptr;
    return replaced_by<fetch_endpoint>(memory, target, entry != nullptr ? entry : endpoint);
}

/** Open MPI destroys the worker, and its endpoints with it. */
void finalize(void *pool) {
    {
        const std::lock_guard<std::mutex> lock(state().mutex);
        state().endpoints.clear();
    }
    replaced_by<finalize>(pool);
}

}  // namespace

void redirect_endpoints_of_worlds(const MpiTarget &target) {
    const OpenMpiLibrary &library = target.library;
    state().byte = library.as_bound("ompi_mpi_byte");
    if (state().byte == nullptr || !find_world(library) ||
        !library.mpi("PMPI_Allgather", &state().allgather)) {
        return;
    }
    target.redirection->add_all(
        {replaced_call<create_memory, OpalFailure>("opal_common_ucx_wpmem_create"),
         replaced_call<free_memory, OpalFailure>("opal_common_ucx_wpmem_free"),
         replaced_call<fetch_endpoint, OpalFailure>("opal_common_ucx_tlocal_fetch_spath"),
         replaced_call<finalize, OpalFailure>("opal_common_ucx_wpool_finalize")},
        [&](const char *symbol) { return library.opal(symbol); }, libraries_of_windows());
}

}  // namespace gpushm::openmpi
