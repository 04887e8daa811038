// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/datatypes/packed_layout.hpp"

#include "core/copy/engine_pool.hpp"
#include "openmpi/datatypes/type_walk.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace gpushm::openmpi {

std::shared_ptr<const PackedLayout> make_layout(const void *datatype, size_t count) {
    std::vector<CopyPiece> pieces;
    ptrdiff_t first_byte = PTRDIFF_MAX;
    ptrdiff_t end = PTRDIFF_MIN;
    uintptr_t packed = 0;
    BorrowedWalk walk;
    walk->start(datatype, count, nullptr);
    for (Block block = walk->next(SIZE_MAX); block.length > 0; block = walk->next(SIZE_MAX)) {
        append_joined(&pieces, {reinterpret_cast<void *>(packed), block.address, block.length});
        packed += block.length;
        const auto begin = reinterpret_cast<ptrdiff_t>(block.address);
        first_byte = std::min(first_byte, begin);
        end = std::max(end, begin + static_cast<ptrdiff_t>(block.length));
    }
    return std::make_shared<PackedLayout>(PackedLayout{count, std::move(pieces), first_byte, end});
}

std::vector<CopyPiece> placed(std::vector<CopyPiece> offsets, const void *elements,
                              const void *packed, Way way) {
    const auto at = [](const void *base, const void *offset) {
        return reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(base) +
                                        reinterpret_cast<uintptr_t>(offset));
    };
    for (CopyPiece &piece : offsets) {
        void *const place = at(packed, piece.destination);
        void *const element = at(elements, piece.source);
        const CopyRows rows = piece.rows;
        piece = way == Way::pack
                    ? CopyPiece{place, element, piece.length, rows}
                    : CopyPiece{element,
                                place,
                                piece.length,
                                {rows.count, rows.source_pitch, rows.destination_pitch}};
    }
    return offsets;
}

bool kernels_reach(const PackedLayout &layout, const MemoryInfo &info, const void *elements,
                   const void *packed, size_t bytes) {
    const auto *first = static_cast<const char *>(elements) + layout.first_byte;
    const auto extent = static_cast<size_t>(layout.end - layout.first_byte);
    BorrowedEngine engine;
    return engine->is_in_reach(info, first, extent) && engine->is_in_reach(info, packed, bytes);
}

}  // namespace gpushm::openmpi
