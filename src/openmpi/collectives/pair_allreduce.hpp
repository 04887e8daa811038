// SPDX-License-Identifier: BSD-3-Clause
// MPI_Allreduce of two ranks on GPU memory, without Open MPI's algorithms.
#pragma once

#include "openmpi/binding/collective_messages.hpp"
#include "openmpi/collectives/pair_agreement.hpp"
#include "openmpi/collectives/small_collectives.hpp"

#include <cstddef>

namespace gpushm::openmpi {

/** Call once, before the class is used. False: this Open MPI lacks a function that it needs. */
bool prepare_pair_allreduce(const OpenMpiLibrary &library);

/** The parameters of an MPI_Allreduce. */
struct AllreduceCall {
    const void *send;  // may be MPI_IN_PLACE
    void *receive;
    ptrdiff_t count;
    Handle datatype;
    Handle operation;
    Handle communicator;
};

/** One call of MPI_Allreduce. */
class PairAllreduce {
public:
    /** Makes a step towards an agreement of both ranks (PairAgreement), if there are two. */
    explicit PairAllreduce(const AllreduceCall &call);
    ~PairAllreduce();
    PairAllreduce(const PairAllreduce &) = delete;
    PairAllreduce &operator=(const PairAllreduce &) = delete;

    /** Whether both ranks let gpushm run the operation. Then call run(), else ended_elsewhere(). */
    bool is_ours() const { return is_ours_; }

    /** Each rank gets its peer's elements once, and reduces them with its own: all of them, or, if
     * there are many, half of them; the halves of the result are then exchanged. Unlike Open MPI's
     * algorithms this copies nothing to the result first. Both ranks get the same bits, unless the
     * driver refuses a launch or the context ends. Returns an error class, after a call of the
     * communicator's error handler. */
    int run();

    /** Open MPI has run the operation. */
    void ended_elsewhere();

private:
    struct Part {
        size_t begin;  // elements
        size_t count;
    };

    bool is_preferred();
    bool is_for_gpu() const;
    bool take_scratch();
    void give_back_scratch();
    size_t most_reduced() const;
    int reduce_halves(const Part &part) const;
    int reduce_part(const Part &own, const Part &theirs) const;
    int exchange(void *into, size_t into_count, const void *from, size_t from_count) const;
    int reduce(void *result, const void *theirs, const void *own, size_t count) const;
    void *place(const void *buffer, size_t element) const;

    const AllreduceCall call_;
    const size_t element_;  // bytes
    const size_t count_;
    int rank_ = 0;
    PairAgreement<PeerMessages> *agreement_ = nullptr;
    void *scratch_ = nullptr;  // in place: GPU memory for what the peer sends
    bool is_ours_ = false;
};

}  // namespace gpushm::openmpi
