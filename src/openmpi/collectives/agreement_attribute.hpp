// SPDX-License-Identifier: BSD-3-Clause
// The agreement that belongs to a communicator.
#pragma once

#include "openmpi/binding/collective_messages.hpp"
#include "openmpi/binding/open_mpi_library.hpp"
#include "openmpi/collectives/pair_agreement.hpp"

namespace gpushm::openmpi {

/** Call once, before the other function. False: this Open MPI lacks a function that it needs. */
bool prepare_agreements(const OpenMpiLibrary &library);

/** Of `communicator`, which has two ranks, and this process is rank `rank`. An attribute of the
 * communicator, with which it ends; made by the first call. Null: the ranks are on different nodes,
 * pml/ucx does not send their messages, a peer of this process lacks gpushm, the communicator ends,
 * or MPI has failed. */
PairAgreement<PeerMessages> *agreement_of(void *communicator, int rank);

/** Calls end() of an agreement. If the peer has not answered, the process makes no further
 * agreement: each attempt leaves messages at the peer that are never received. */
void end_operation(PairAgreement<PeerMessages> *agreement);

/** While it lives, this thread frees a communicator, which has no agreement any more: its
 * attributes end one by one, in another order on each rank, and functions of the program that are
 * called meanwhile may call MPI_Allreduce. */
class CommunicatorEnd {
public:
    explicit CommunicatorEnd(const void *communicator)
        : outer_(current_), communicator_(communicator) {
        current_ = this;
    }
    ~CommunicatorEnd() { current_ = outer_; }
    CommunicatorEnd(const CommunicatorEnd &) = delete;
    CommunicatorEnd &operator=(const CommunicatorEnd &) = delete;

    static bool is_of(const void *communicator) {
        const CommunicatorEnd *end = current_;
        while (end != nullptr && end->communicator_ != communicator) {
            end = end->outer_;
        }
        return end != nullptr;
    }

private:
    static inline thread_local const CommunicatorEnd *current_ = nullptr;

    const CommunicatorEnd *outer_;
    const void *communicator_;
};

}  // namespace gpushm::openmpi
