// SPDX-License-Identifier: BSD-3-Clause
// A job that begins with MPI_Session_init does not use UCX (attachment.cpp). A job that begins with
// MPI_Init uses UCX already when it opens a session. The processes of its groups are in
// MPI_COMM_WORLD, from which communicators can be created without extended context ids.
#include "openmpi/setup/sessions.hpp"

#include "core/base/log.hpp"
#include "openmpi/binding/gpu_memory.hpp"
#include "openmpi/binding/mpi_world.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace gpushm::openmpi {
namespace {

constexpr int kInitStarted = 1;    // OMPI_MPI_STATE_INIT_STARTED (ompi/runtime/mpiruntime.h)
constexpr unsigned kTags = 32768;  // tags that every MPI has
constexpr size_t kComponentName =
    84;  // mca_component_name of mca_base_component_t (opal/mca/mca.h)

struct Functions {
    int (*create_group)(void *comm, void *group, int tag, void **created);
    int (*intercomm_create)(void *local, int local_leader, void *peer, int remote_leader, int tag,
                            void **created);
    int (*comm_free)(void **comm);
    int (*comm_set_errhandler)(void *comm, void *error_handler);
    int (*comm_set_info)(void *comm, void *info);
    int (*group_rank)(void *group, int *rank);
};

struct State {
    Functions mpi;
    const void *group_null;
    const void *info_null;
    const char *selected_pml;  // set by Open MPI when it has selected one
};
State known;

bool sends_through_ucx() {
    return std::strcmp(known.selected_pml, "ucx") == 0;
}

/** The ranks of a group's processes in MPI_COMM_WORLD. Empty: not all are in it, or Open MPI can
 * create communicators from groups. */
std::vector<int> ranks_of(void *group) {
    if (group == nullptr || group == known.group_null || !sends_through_ucx() || !has_world()) {
        return {};
    }
    std::vector<int> ranks = ranks_in_world(group);
    const bool all = std::find(ranks.begin(), ranks.end(), kUndefinedRank) == ranks.end();
    return all ? std::move(ranks) : std::vector<int>();
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
    int rank = kUndefinedRank;
    if (tag == nullptr || comm == nullptr || info == nullptr || error_handler == nullptr ||
        ranks_of(group).empty() || known.mpi.group_rank(group, &rank) != kMpiSuccess ||
        rank == kUndefinedRank) {
        return replaced_by<create_from_group>(group, tag, info, error_handler, comm);
    }
    const int result = known.mpi.create_group(comm_world(), group, tag_of(tag), comm);
    return result == kMpiSuccess ? set_up(*comm, info, error_handler) : result;
}

int intercomm_from_groups(void *local, int local_leader, void *remote, int remote_leader,
                          const char *tag, void *info, void *error_handler, void **comm) {
    const std::vector<int> remote_ranks = ranks_of(remote);
    void *local_comm = nullptr;
    if (tag == nullptr || comm == nullptr || info == nullptr || error_handler == nullptr ||
        ranks_of(local).empty() || remote_leader < 0 ||
        static_cast<size_t>(remote_leader) >= remote_ranks.size()) {
        return replaced_by<intercomm_from_groups>(local, local_leader, remote, remote_leader, tag,
                                                  info, error_handler, comm);
    }
    int result = known.mpi.create_group(comm_world(), local, tag_of(tag), &local_comm);
    if (result != kMpiSuccess) {
        return result;
    }
    result = known.mpi.intercomm_create(local_comm, local_leader, comm_world(),
                                        remote_ranks[static_cast<size_t>(remote_leader)],
                                        tag_of(tag), comm);
    known.mpi.comm_free(&local_comm);
    return result == kMpiSuccess ? set_up(*comm, info, error_handler) : result;
}

bool find_functions(const OpenMpiLibrary &library, Functions *mpi) {
    return library.mpi("PMPI_Comm_create_group", &mpi->create_group) &&
           library.mpi("PMPI_Intercomm_create", &mpi->intercomm_create) &&
           library.mpi("PMPI_Comm_free", &mpi->comm_free) &&
           library.mpi("PMPI_Comm_set_errhandler", &mpi->comm_set_errhandler) &&
           library.mpi("PMPI_Comm_set_info", &mpi->comm_set_info) &&
           library.mpi("PMPI_Group_rank", &mpi->group_rank);
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
    return replaced_by<win_create>(base, size, unit, info, comm, window);
}

int win_attach(void *window, void *base, ptrdiff_t size) {
    explain_refusal(base);
    return replaced_by<win_attach>(window, base, size);
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

void redirect_session_calls(const MpiTarget &target) {
    known.group_null = target.library.as_bound("ompi_mpi_group_null");
    known.info_null = target.library.as_bound("ompi_mpi_info_null");
    if (find_world(target.library) && find_selected_pml(target.library) &&
        find_functions(target.library, &known.mpi)) {
        target.redirect<create_from_group>("Comm_create_from_group");
        target.redirect<intercomm_from_groups>("Intercomm_create_from_groups");
    }
}

void explain_refused_windows(const MpiTarget &target) {
    if (find_selected_pml(target.library)) {
        target.redirect<win_create>("Win_create");
        target.redirect<win_attach>("Win_attach");
    }
}

}  // namespace gpushm::openmpi
