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

/** Adds `piece` behind the others. It becomes part of the last one if it adjoins that one, or is
 * its next row. */
void append_joined(std::vector<CopyPiece> *pieces, const CopyPiece &piece);

/** Copies all pieces and waits, in any order, and together where the driver permits. No destination
 * may overlap another one or a source. Returns ok or gpu_error, logged. Thread safe. */
Status copy_pieces(const std::vector<CopyPiece> &pieces);

/** Like copy_pieces(), for pieces that kernels reach (kernels_reach()) and that are all memory of
 * the GPU of `gpu_side`. One launch copies RowCopyList::kMax pieces of any shape, if the context
 * has our kernels and the standby kernel is not there for few short pieces. */
Status copy_pieces_within(const MemoryInfo &gpu_side, const std::vector<CopyPiece> &pieces);

}  // namespace gpushm
