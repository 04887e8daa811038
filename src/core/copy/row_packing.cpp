// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/row_packing.hpp"

#include "core/copy/copy_pieces.hpp"

namespace gpushm {

bool pack_rows(void *block, const StridedRows &rows) {
    const CopyPiece piece = {block,
                             reinterpret_cast<const void *>(rows.address),
                             rows.length,
                             {rows.count, rows.length, rows.pitch}};
    return copy_pieces({piece}) == Status::ok;
}

void add_row_source(const void *block, const StridedRows &rows) {
    RowViews::instance().add_source(block, rows, pack_rows);
}

}  // namespace gpushm
