// SPDX-License-Identifier: BSD-3-Clause
// How the standby kernel (standby_kernel.cu) copies rows. For nvcc only.
//
// All threads of the block take the words of all rows by turns, so that neighbouring threads have
// neighbouring words also where a row is shorter than a warp.
#pragma once

#include "core/kernels/standby_memory.hpp"
#include "core/kernels/standby_protocol.hpp"

namespace {

/** Units of a command of rows. */
constexpr uint32_t kRowsUnits = gpushm::standby_units(gpushm::kStandbyRows);

/** A command of rows for all warps. */
struct Rows {
    StandbyUnit units[kRowsUnits];

    /** Each of the first lanes writes the unit that it has read. */
    __device__ void set(const StandbyUnit &unit, uint32_t lane) {
        if (lane < kRowsUnits) {
            units[lane] = unit;
        }
    }
    __device__ void clear() { units[1].argument = 0; }

    __device__ uint64_t destination() const { return units[0].word; }
    __device__ uint32_t length() const { return units[0].argument & gpushm::kStandbyLength; }
    __device__ uint64_t source() const { return units[1].word; }
    __device__ uint32_t count() const { return units[1].argument; }
    __device__ uint32_t destination_pitch() const { return static_cast<uint32_t>(units[2].word); }
    __device__ uint32_t source_pitch() const { return units[2].argument; }
};

/** In which row a word is, without a division for each. */
class RowWords {
public:
    __device__ explicit RowWords(uint32_t per_row)
        : per_row_(per_row), inverse_((kOne - 1) / per_row + 1) {}

    /** `index` is that of a word of all rows. Exact: the inverse is too large by less than
     * 1 / kOne, and both index and per_row_ are at most kStandbyMostRowBytes. */
    __device__ uint32_t row_of(uint32_t index) const {
        return static_cast<uint32_t>(static_cast<uint64_t>(index) * inverse_ >> kShift);
    }
    __device__ uint32_t word_of(uint32_t index, uint32_t row) const {
        return index - row * per_row_;
    }

private:
    static constexpr uint32_t kShift = 30;
    static constexpr uint32_t kOne = 1u << kShift;
    static_assert(uint64_t{gpushm::kStandbyMostRowBytes} * gpushm::kStandbyMostRowBytes <= kOne);

    const uint32_t per_row_;
    const uint32_t inverse_;  // times kOne, rounded up
};

/** The size of the words of the copy as a power of two: the largest that everything permits. */
__device__ uint32_t word_shift(const Rows &rows) {
    const uint32_t bits = static_cast<uint32_t>(rows.destination()) |
                          static_cast<uint32_t>(rows.source()) | rows.length() |
                          rows.destination_pitch() | rows.source_pitch() | 16;
    return __ffs(bits) - 1;
}

/** Loads a word of any size: one loop for each size does not fit the registers. */
__device__ __forceinline__ uint4 load_word(uint64_t address, uint32_t shift) {
    uint4 word;
    if (shift == 4) {
        word = load_fresh<uint4>(address);
    } else if (shift == 3) {
        const auto half = load_fresh<uint2>(address);
        word.x = half.x;
        word.y = half.y;
    } else if (shift == 2) {
        word.x = load_fresh<uint32_t>(address);
    } else if (shift == 1) {
        word.x = load_fresh<unsigned short>(address);
    } else {
        word.x = load_fresh<unsigned char>(address);
    }
    return word;
}

__device__ __forceinline__ void store_word(uint64_t address, const uint4 &word, uint32_t shift) {
    if (shift == 4) {
        store_through(address, word);
    } else if (shift == 3) {
        store_through(address, uint2{word.x, word.y});
    } else if (shift == 2) {
        store_through(address, word.x);
    } else if (shift == 1) {
        store_through(address, static_cast<unsigned short>(word.x));
    } else {
        store_through(address, static_cast<unsigned char>(word.x));
    }
}

/** All threads of the block copy the rows. */
template <uint32_t kThreads>
__device__ __forceinline__ void copy_rows(const Rows &rows) {
    constexpr uint32_t kWordsInFlight = 8;
    const uint32_t shift = word_shift(rows);
    const uint32_t per_row = rows.length() >> shift;
    const uint32_t end = per_row * rows.count();
    const RowWords words(per_row);
#pragma unroll 1
    for (uint32_t first = threadIdx.x; first < end; first += kWordsInFlight * kThreads) {
        const auto at = [&](uint32_t index, uint64_t address, uint32_t pitch) {
            const uint32_t row = words.row_of(index);
            return address + static_cast<uint64_t>(row) * pitch +
                   (words.word_of(index, row) << shift);
        };
        uint4 values[kWordsInFlight];
#pragma unroll
        for (uint32_t i = 0; i < kWordsInFlight; ++i) {
            const uint32_t index = first + i * kThreads;
            if (index < end) {
                values[i] = load_word(at(index, rows.source(), rows.source_pitch()), shift);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < kWordsInFlight; ++i) {
            const uint32_t index = first + i * kThreads;
            if (index < end) {
                store_word(at(index, rows.destination(), rows.destination_pitch()), values[i],
                           shift);
            }
        }
    }
}

}  // namespace
