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
 * pml/ucx does not send their messages, or MPI has failed. */
PairAgreement<PeerMessages> *agreement_of(void *communicator, int rank);

}  // namespace gpushm::openmpi
