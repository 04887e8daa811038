// SPDX-License-Identifier: BSD-3-Clause
// A job that begins with MPI_Session_init does not use UCX (attachment.cpp). A job that begins with
// MPI_Init uses UCX already when it opens a session. The processes of its groups are in
// MPI_COMM_WORLD, from which communicators can be created without extended context ids.
#include "openmpi/setup/sessions.hpp"

#include "core/base/log.hpp"
#include "openmpi/binding/gpu_memory.hpp"
#include "openmpi/binding/mpi_call.hpp"
#include "openmpi/binding/no_throw_calls.hpp"

#include <cstddef>
#include <cstring>
#include <functional>
#include <numeric>
#include <string_view>
#include <vector>

namespace gpushm::openmpi {
namespace {

constexpr int kInitStarted = 1;     // OMPI_MPI_STATE_INIT_STARTED (ompi/runtime/mpiruntime.h)
constexpr int kUndefined = -32766;  // MPI_UNDEFINED
constexpr unsigned kTags = 32768;   // tags that every MPI has
constexpr size_t kComponentName =
    84;  // mca_component_name of mca_base_component_t (opal/mca/mca.h)

struct Functions {
    int (*create_from_group)(void *group, const char *tag, void *info, void *error_handler,
                             void **comm);
    int (*intercomm_from_groups)(void *local, int local_leader, void *remote, int remote_leader,
                                 const char *tag, void *info, void *error_handler, void **comm);
    int (*create_group)(void *comm, void *group, int tag, void **created);
    int (*intercomm_create)(void *local, int local_leader, void *peer, int remote_leader, int tag,
                            void **created);
    int (*comm_group)(void *comm, void **group);
    int (*comm_free)(void **comm);
    int (*comm_set_errhandler)(void *comm, void *error_handler);
    int (*comm_set_info)(void *comm, void *info);
    int (*group_size)(void *group, int *size);
    int (*group_rank)(void *group, int *rank);
    int (*group_translate_ranks)(void *group, int count, const int *ranks, void *other,
                                 int *translated);
    int (*group_free)(void **group);
    int (*initialized)(int *flag);
    int (*finalized)(int *flag);
};

struct State {
    Functions mpi;
    void *comm_world;
    const void *group_null;
    const void *info_null;
    const char *selected_pml;  // set by Open MPI when it has selected one
    int (*win_create)(void *base, ptrdiff_t size, int unit, void *info, void *comm, void **window);
    int (*win_attach)(void *window, void *base, ptrdiff_t size);
};
State known;

bool sends_through_ucx() {
    return std::strcmp(known.selected_pml, "ucx") == 0;
}

/** Whether MPI_COMM_WORLD exists, and Open MPI cannot create communicators from groups. */
bool is_to_use_world() {
    int initialized = 0;
    int finalized = 0;
    return sends_through_ucx() && known.mpi.initialized(&initialized) == kMpiSuccess &&
           initialized != 0 && known.mpi.finalized(&finalized) == kMpiSuccess && finalized == 0;
}

/** The ranks of a group's processes in MPI_COMM_WORLD. Empty: not all are in it. */
std::vector<int> ranks_in_world(void *group) {
    int size = 0;
    void *world = nullptr;
    if (group == nullptr || group == known.group_null || !is_to_use_world() ||
        known.mpi.group_size(group, &size) != kMpiSuccess ||
        known.mpi.comm_group(known.comm_world, &world) != kMpiSuccess) {
        return {};
    }
    std::vector<int> ranks(static_cast<size_t>(size));
    std::vector<int> in_world(ranks.size(), kUndefined);
    std::iota(ranks.begin(), ranks.end(), 0);
    known.mpi.group_translate_ranks(group, size, ranks.data(), world, in_world.data());
    known.mpi.group_free(&world);
    for (int rank : in_world) {
        if (rank == kUndefined) {
            return {};
        }
    }
    return in_world;
}

/** A tag that is equal in all processes for equal strings. */
int tag_of(const char *text) {
    return static_cast<int>(std::hash<std::string_view>()(text) % kTags);
}

int set_up(void *comm, void *info, void *error_handler) {
    const int result = known.mpi.comm_set_errhandler(comm, error_handler);
    return result == kMpiSuccess && info != known.info_null ? known.mpi.comm_set_info(comm, info)
                                                            : result;
}

int create_from_group(void *group, const char *tag, void *info, void *error_handler, void **comm) {
    int rank = kUndefined;
    if (tag == nullptr || comm == nullptr || info == nullptr || error_handler == nullptr ||
        ranks_in_world(group).empty() || known.mpi.group_rank(group, &rank) != kMpiSuccess ||
        rank == kUndefined) {
        return known.mpi.create_from_group(group, tag, info, error_handler, comm);
    }
    const int result = known.mpi.create_group(known.comm_world, group, tag_of(tag), comm);
    return result == kMpiSuccess ? set_up(*comm, info, error_handler) : result;
}

int intercomm_from_groups(void *local, int local_leader, void *remote, int remote_leader,
                          const char *tag, void *info, void *error_handler, void **comm) {
    const std::vector<int> remote_ranks = ranks_in_world(remote);
    void *local_comm = nullptr;
    if (tag == nullptr || comm == nullptr || info == nullptr || error_handler == nullptr ||
        ranks_in_world(local).empty() || remote_leader < 0 ||
        static_cast<size_t>(remote_leader) >= remote_ranks.size()) {
        return known.mpi.intercomm_from_groups(local, local_leader, remote, remote_leader, tag,
                                               info, error_handler, comm);
    }
    int result = known.mpi.create_group(known.comm_world, local, tag_of(tag), &local_comm);
    if (result != kMpiSuccess) {
        return result;
    }
    result = known.mpi.intercomm_create(local_comm, local_leader, known.comm_world,
                                        remote_ranks[static_cast<size_t>(remote_leader)],
                                        tag_of(tag), comm);
    known.mpi.comm_free(&local_comm);
    return result == kMpiSuccess ? set_up(*comm, info, error_handler) : result;
}

bool find_functions(const OpenMpiLibrary &library, Functions *mpi) {
    return library.mpi("PMPI_Comm_create_group", &mpi->create_group) &&
           library.mpi("PMPI_Intercomm_create", &mpi->intercomm_create) &&
           library.mpi("PMPI_Comm_group", &mpi->comm_group) &&
           library.mpi("PMPI_Comm_free", &mpi->comm_free) &&
           library.mpi("PMPI_Comm_set_errhandler", &mpi->comm_set_errhandler) &&
           library.mpi("PMPI_Comm_set_info", &mpi->comm_set_info) &&
           library.mpi("PMPI_Group_size", &mpi->group_size) &&
           library.mpi("PMPI_Group_rank", &mpi->group_rank) &&
           library.mpi("PMPI_Group_translate_ranks", &mpi->group_translate_ranks) &&
           library.mpi("PMPI_Group_free", &mpi->group_free) &&
           library.mpi("PMPI_Initialized", &mpi->initialized) &&
           library.mpi("PMPI_Finalized", &mpi->finalized);
}

bool find_selected_pml(const OpenMpiLibrary &library) {
    const auto *component =
        static_cast<const char *>(library.mpi("mca_pml_base_selected_component"));
    known.selected_pml = component != nullptr ? component + kComponentName : nullptr;
    return component != nullptr;
}

/** Logs a line, because Open MPI's own error, which follows, does not mention GPUs. */
void explain_refusal(const void *base) {
    if (!sends_through_ucx() && is_gpu_memory(base)) {
        GPUSHM_LOG(error,
                   "Open MPI refuses a window in GPU memory (%p), because the job begins with "
                   "MPI_Session_init or tolerates faults (mpirun --with-ft) and so does not use "
                   "UCX: begin "
                   "it with MPI_Init, and without --with-ft",
                   base);
    }
}

int win_create(void *base, ptrdiff_t size, int unit, void *info, void *comm, void **window) {
    explain_refusal(base);
    return known.win_create(base, size, unit, info, comm, window);
}

int win_attach(void *window, void *base, ptrdiff_t size) {
    explain_refusal(base);
    return known.win_attach(window, base, size);
}

}  // namespace

bool begins_with_session(const OpenMpiLibrary &library) {
    const auto *mpi_state = static_cast<const int *>(library.mpi("ompi_mpi_state"));
    return library.mpi("MPI_Session_init") != nullptr && mpi_state != nullptr &&
           *mpi_state != kInitStarted;
}

bool tolerates_faults(const OpenMpiLibrary &library) {
    const auto *enabled = static_cast<const bool *>(library.mpi("ompi_ftmpi_enabled"));
    return enabled != nullptr && *enabled;
}

void redirect_session_calls(const OpenMpiLibrary &library, CallRedirection *redirection) {
    known.comm_world = library.as_bound("ompi_mpi_comm_world");
    known.group_null = library.as_bound("ompi_mpi_group_null");
    known.info_null = library.as_bound("ompi_mpi_info_null");
    if (known.comm_world != nullptr && find_selected_pml(library) &&
        find_functions(library, &known.mpi)) {
        redirect_mpi_call<create_from_group>(library, redirection, "Comm_create_from_group",
                                             &known.mpi.create_from_group);
        redirect_mpi_call<intercomm_from_groups>(
            library, redirection, "Intercomm_create_from_groups", &known.mpi.intercomm_from_groups);
    }
}

void explain_refused_windows(const OpenMpiLibrary &library, CallRedirection *redirection) {
    if (find_selected_pml(library)) {
        redirect_mpi_call<win_create>(library, redirection, "Win_create", &known.win_create);
        redirect_mpi_call<win_attach>(library, redirection, "Win_attach", &known.win_attach);
    }
}

}  // namespace gpushm::openmpi
