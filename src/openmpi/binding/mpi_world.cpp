// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/binding/mpi_world.hpp"

#include "openmpi/binding/mpi_call.hpp"

#include <memory>
#include <numeric>

namespace gpushm::openmpi {
namespace {

struct Functions {
    int (*initialized)(int *flag);
    int (*finalized)(int *flag);
    int (*comm_group)(void *communicator, void **group);
    int (*group_size)(void *group, int *size);
    int (*translate_ranks)(void *group, int count, const int *ranks, void *other, int *other_ranks);
    int (*group_free)(void **group);
};

Functions mpi;
void *world = nullptr;  // null: a function is missing

void free_group(void *group) {
    mpi.group_free(&group);
}

using Group = std::unique_ptr<void, void (*)(void *)>;

/** Null: MPI failed. */
Group group_of(void *communicator) {
    void *group = nullptr;
    const bool found = mpi.comm_group(communicator, &group) == kMpiSuccess;
    return {found ? group : nullptr, free_group};
}

}  // namespace

bool find_world(const OpenMpiLibrary &library) {
    const bool found = library.mpi("PMPI_Initialized", &mpi.initialized) &&
                       library.mpi("PMPI_Finalized", &mpi.finalized) &&
                       library.mpi("PMPI_Comm_group", &mpi.comm_group) &&
                       library.mpi("PMPI_Group_size", &mpi.group_size) &&
                       library.mpi("PMPI_Group_translate_ranks", &mpi.translate_ranks) &&
                       library.mpi("PMPI_Group_free", &mpi.group_free);
    world = found ? library.as_bound("ompi_mpi_comm_world") : nullptr;
    return world != nullptr;
}

void *comm_world() {
    return world;
}

bool has_world() {
    int initialized = 0;
    int finalized = 0;
    return world != nullptr && mpi.initialized(&initialized) == kMpiSuccess && initialized != 0 &&
           mpi.finalized(&finalized) == kMpiSuccess && finalized == 0;
}

std::vector<int> ranks_in_world(void *group) {
    const Group all = group_of(world);
    int size = 0;
    if (all == nullptr || mpi.group_size(group, &size) != kMpiSuccess) {
        return {};
    }
    std::vector<int> ranks(static_cast<size_t>(size));
    std::vector<int> in_world(ranks.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    const int result = mpi.translate_ranks(group, size, ranks.data(), all.get(), in_world.data());
    return result == kMpiSuccess ? in_world : std::vector<int>();
}

std::vector<int> ranks_in_world_of_communicator(void *communicator) {
    const Group group = group_of(communicator);
    return group != nullptr ? ranks_in_world(group.get()) : std::vector<int>();
}

}  // namespace gpushm::openmpi
