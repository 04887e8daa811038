// SPDX-License-Identifier: BSD-3-Clause
// What the replaced functions of Open MPI ask about buffers, and how they tell of a GPU that fails.
#pragma once

#include "core/copy/copy_pieces.hpp"
#include "openmpi/binding/opal_datatype.hpp"

#include <cstddef>
#include <vector>

namespace gpushm::openmpi {

/** Whether a GPU has to copy the memory at `address`: device memory, and managed memory that is not
 * on the CPU. No for null. */
bool is_gpu_memory(const void *address);

/** As above, of elements of `datatype` at `base`, by the first byte of theirs. A null base means
 * absolute addresses (MPI_BOTTOM), which may be of several kinds: then yes, when the process uses
 * CUDA at all. */
bool is_gpu_memory(const OpalDatatype &datatype, const void *base);

/** Copies; when a GPU fails, MPI's error handler is called, since Open MPI takes these copies for
 * something that cannot fail. `operation` is for the message. False then. */
bool copy_or_report(const std::vector<CopyPiece> &pieces, const char *operation);

/** Calls MPI's error handler for such a copy that has failed elsewhere. */
void report_lost(const char *operation);

/** The same for host memory that cannot be had; an error of OPAL. */
int report_no_memory(const char *operation);

/** Tells of it where memory is short for anything else, and calls that handler; an error class of
 * MPI. */
int report_want_of_memory_to_mpi();

/** Whether this thread has reported such a failure since the watch began: MPI's error handler may
 * have returned, and what Open MPI then returns says nothing of it. */
class FailureWatch {
public:
    FailureWatch() : begin_(reported_) {}
    bool failed() const { return reported_ != begin_; }
    static void note() { ++reported_; }

private:
    static thread_local unsigned reported_;
    const unsigned begin_;
};

/** To be called once, before the others. */
void set_error_reporting(const OpenMpiLibrary &library);

}  // namespace gpushm::openmpi
