// SPDX-License-Identifier: BSD-3-Clause
// Used by the functions that replace those of Open MPI: whether a buffer is in GPU memory, copies,
// and how a failure reaches MPI's error handler.
#pragma once

#include "core/copy/copy_pieces.hpp"
#include "core/memory/memory_query.hpp"
#include "core/memory/page_residency.hpp"
#include "openmpi/binding/opal_datatype.hpp"

#include <cstddef>
#include <vector>

namespace gpushm::openmpi {

/** Whether a GPU has to copy the memory at `address`: device memory, or managed memory whose pages
 * are not on the CPU. False for null. */
inline bool is_gpu_memory(const void *address) {
    return address != nullptr && gpu_copies(query_memory(address), address, 1);
}

/** Whether a GPU has to copy elements of `datatype` at `base`, judged by the first byte. A null
 * base means absolute addresses (MPI_BOTTOM), which may be in several kinds of memory: true if the
 * process uses CUDA. */
bool is_gpu_memory(const OpalDatatype &datatype, const void *base);

/** Copies. False: a GPU failed; the failure is logged with the name `operation`, and MPI's error
 * handler was called, because Open MPI assumes that these copies cannot fail. */
bool copy_or_report(const std::vector<CopyPiece> &pieces, const char *operation);

/** Logs a failed copy and calls MPI's error handler. */
void report_lost(const char *operation);

/** Logs that host memory is short, and calls MPI's error handler. Returns an error code of OPAL. */
int report_no_memory(const char *operation);

/** Logs that memory is short, outside of a copy, and calls MPI's error handler. Returns an error
 * class of MPI. */
int report_want_of_memory_to_mpi();

/** Whether this thread has reported a failure since the object was made. MPI's error handler may
 * return, and the result of Open MPI's function then does not show the failure. */
class FailureWatch {
public:
    FailureWatch() : begin_(reported_) {}
    bool failed() const { return reported_ != begin_; }
    static void note() { ++reported_; }

private:
    static thread_local unsigned reported_;
    const unsigned begin_;
};

/** Call once, before the other functions. */
void set_error_reporting(const OpenMpiLibrary &library);

}  // namespace gpushm::openmpi
