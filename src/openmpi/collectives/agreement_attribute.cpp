// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/collectives/agreement_attribute.hpp"

#include "openmpi/binding/mpi_call.hpp"
#include "openmpi/binding/mpi_world.hpp"

#include <atomic>
#include <memory>
#include <new>

namespace gpushm::openmpi {
namespace {

using Agreement = PairAgreement<PeerMessages>;

// MPI_Comm_copy_attr_function and MPI_Comm_delete_attr_function.
using CopyAttribute = int (*)(void *communicator, int key, void *extra, void *value, void *copy,
                              int *is_copied);
using DeleteAttribute = int (*)(void *communicator, int key, void *value, void *extra);

struct Mpi {
    int (*comm_group)(void *communicator, void **group);
    int (*group_free)(void **group);
    int (*create_keyval)(CopyAttribute copy, DeleteAttribute destroy, int *key, void *extra);
    int (*get_attr)(void *communicator, int key, void *value, int *is_set);
    int (*set_attr)(void *communicator, int key, void *value);
    // bool ompi_group_have_remote_peers(ompi_group_t *) of ompi/group/group.h in Open MPI 4.1, 5.0
    // and 6.0: whether some are on other nodes.
    bool (*have_remote_peers)(void *group);
};
Mpi mpi;

constexpr int kNoKey = -1;  // MPI_KEYVAL_INVALID

/** A communicator that is made from this one has an agreement of its own. */
int do_not_copy(void *, int, void *, void *, void *, int *is_copied) {
    *is_copied = 0;
    return kMpiSuccess;
}

int destroy(void *, int, void *agreement, void *) {
    delete static_cast<Agreement *>(agreement);
    return kMpiSuccess;
}

int create_key() {
    int key = kNoKey;
    return mpi.create_keyval(do_not_copy, destroy, &key, nullptr) == kMpiSuccess ? key : kNoKey;
}

// A peer has not answered, or has not been answered: what it sends is never received, and would be
// taken for a word of another peer if its communicator's number is used again.
std::atomic<bool> is_alone{false};

Agreement *go_alone() {
    is_alone.store(true, std::memory_order_relaxed);
    return nullptr;
}

Agreement *make_agreement(void *communicator, int key, int rank) {
    void *group = nullptr;
    if (is_alone.load(std::memory_order_relaxed)) {
        return nullptr;
    }
    if (mpi.comm_group(communicator, &group) != kMpiSuccess) {
        return go_alone();
    }
    const bool is_of_one_node = !mpi.have_remote_peers(group);
    mpi.group_free(&group);
    if (!is_of_one_node) {
        return nullptr;
    }
    std::unique_ptr<Agreement> made(new (std::nothrow) Agreement({communicator, 1 - rank}));
    const bool is_set =
        made != nullptr && mpi.set_attr(communicator, key, made.get()) == kMpiSuccess;
    return is_set ? made.release() : go_alone();
}

}  // namespace

bool prepare_agreements(const OpenMpiLibrary &library) {
    return find_collective_messages(library) && find_world(library) &&
           library.mpi("PMPI_Comm_group", &mpi.comm_group) &&
           library.mpi("PMPI_Group_free", &mpi.group_free) &&
           library.mpi("PMPI_Comm_create_keyval", &mpi.create_keyval) &&
           library.mpi("PMPI_Comm_get_attr", &mpi.get_attr) &&
           library.mpi("PMPI_Comm_set_attr", &mpi.set_attr) &&
           library.mpi("ompi_group_have_remote_peers", &mpi.have_remote_peers);
}

Agreement *agreement_of(void *communicator, int rank) {
    // The key ends with MPI_Finalize; sessions of MPI 4 may begin afterwards.
    if (!has_world() || !ucx_sends_messages() || CommunicatorEnd::is_of(communicator)) {
        return nullptr;
    }
    static const int key = create_key();
    void *found = nullptr;
    int is_set = 0;
    if (key == kNoKey || mpi.get_attr(communicator, key, &found, &is_set) != kMpiSuccess) {
        return go_alone();
    }
    return is_set != 0 ? static_cast<Agreement *>(found) : make_agreement(communicator, key, rank);
}

void end_operation(Agreement *agreement) {
    agreement->end();
    if (agreement->has_no_answer()) {
        go_alone();
    }
}

}  // namespace gpushm::openmpi
