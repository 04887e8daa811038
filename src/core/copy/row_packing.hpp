// SPDX-License-Identifier: BSD-3-Clause
// Sources of RowViews, which the engines of this process fill.
#pragma once

#include "core/copy/row_views.hpp"

namespace gpushm {

/** A PackRows by copy_pieces(); the block may be in host memory. */
bool pack_rows(void *block, const StridedRows &rows);

/** RowViews::add_source(), with pack_rows() to fill the block. Throws std::bad_alloc. */
void add_row_source(const void *block, const StridedRows &rows);

}  // namespace gpushm
