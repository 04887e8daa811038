// SPDX-License-Identifier: BSD-3-Clause
// Where the elements of a datatype lie, and where in the packed bytes.
#pragma once

#include "core/copy/copy_pieces.hpp"
#include "core/memory/memory_info.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace gpushm::openmpi {

/** How `count` elements are packed. Sources are offsets from the begin of the buffer, destinations
 * offsets from the begin of the packed bytes. */
struct PackedLayout {
    size_t count;
    std::vector<CopyPiece> pieces;
    ptrdiff_t first_byte;  // offset of the first byte of the elements
    ptrdiff_t end;         // offset behind their last byte
};

/** Goes through the elements, which takes the CPU 16 to 40 ns for each block of memory
 * (doc/decisions/openmpi-datatype-layouts.md). Throws std::bad_alloc. */
std::shared_ptr<const PackedLayout> make_layout(const void *datatype, size_t count);

/** Layouts of more pieces are not kept. */
constexpr size_t kMaxKeptPieces = 4096;

enum class Way { pack, unpack };

/** The copies between elements in a buffer at `elements` and packed bytes at `packed` that offsets
 * as in PackedLayout stand for. */
std::vector<CopyPiece> placed(std::vector<CopyPiece> offsets, const void *elements,
                              const void *packed, Way way);

/** Whether kernels of the GPU of `info` reach all elements, whose buffer is at `elements`, and
 * `bytes` packed bytes. `info` is what the driver says of the first element. */
bool kernels_reach(const PackedLayout &layout, const MemoryInfo &info, const void *elements,
                   const void *packed, size_t bytes);

}  // namespace gpushm::openmpi
