// SPDX-License-Identifier: BSD-3-Clause
// Many copies at once, between any kinds of memory.
#pragma once

#include "core/base/status.hpp"
#include "core/copy/copy_engine.hpp"

#include <cstddef>
#include <vector>

namespace gpushm {

/** One of several copies. */
struct CopyPiece {
    void *destination;
    const void *source;
    size_t length;       // bytes of a row
    CopyRows rows = {};  // one
};

/** Adds `piece` behind the others, as a part of the last one where it adjoins it or lies at its
 * distance. */
void append_joined(std::vector<CopyPiece> *pieces, const CopyPiece &piece);

/** The same copies in fewer pieces, in the same order. */
std::vector<CopyPiece> join_pieces(const std::vector<CopyPiece> &pieces);

/** Copies all of them and waits, in any order and together where the driver permits. No destination
 * may overlap another one or a source. For callers from any thread, as copy_any(). ok or gpu_error,
 * logged. */
Status copy_pieces(const std::vector<CopyPiece> &pieces);

/** The same where kernels reach all of them (kernels_reach()) and all is memory of the GPU of
 * `gpu_side`: by one launch for RowCopyList::kMax pieces, whatever they look like, if our kernels
 * are there. */
Status copy_pieces_within(const MemoryInfo &gpu_side, const std::vector<CopyPiece> &pieces);

}  // namespace gpushm
