// SPDX-License-Identifier: BSD-3-Clause
// Pieces of a transfer between host memory, as both processes count them.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpushm {

/** Bytes of the piece at `offset`: at most to the end of the transfer. */
inline uint64_t length_of_piece(uint64_t offset, uint64_t piece_bytes, uint64_t length) {
    return offset < length ? std::min(piece_bytes, length - offset) : 0;
}

// Pieces that are copied in one call of progress(), so that messages are served between.
constexpr unsigned kPiecesPerProgress = 2;

}  // namespace gpushm
