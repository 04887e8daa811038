// SPDX-License-Identifier: BSD-3-Clause
// What the replaced functions of Open MPI ask about buffers, and how they tell of a GPU that fails.
#pragma once

#include "core/copy_pieces.hpp"
#include "openmpi/opal_datatype.hpp"

#include <cstddef>
#include <vector>

namespace gpushm::openmpi {

/** Whether a GPU has to copy the memory at `address`: device memory, and managed memory that is not on the
 *  CPU. No for null. */
bool is_gpu_memory(const void *address);

/** As above, of elements of `datatype` at `base`, by the first byte of theirs. A null base means absolute
 *  addresses (MPI_BOTTOM), which may be of several kinds: then yes, when the process uses CUDA at all. */
bool is_gpu_memory(const OpalDatatype &datatype, const void *base);

/** Copies; when a GPU fails, MPI's error handler is called, since Open MPI takes these copies for something
 *  that cannot fail. `operation` is for the message. False then. */
bool copy_or_report(const std::vector<CopyPiece> &pieces, const char *operation);

/** The same for host memory that cannot be had; an error of OPAL. */
int report_no_memory(const char *operation);

/** To be called once, before the others. */
void set_error_reporting(const OpenMpiLibrary &library);

}  // namespace gpushm::openmpi
