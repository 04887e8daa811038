// SPDX-License-Identifier: BSD-3-Clause
// Copies the pieces of derived datatypes: many short ones, anywhere in memory that the GPU reaches.
#include "core/row_copy_kernel.hpp"

namespace {

using gpushm::RowCopy;

// Loads that a thread has in flight: memory of hosts and peers answers after a microsecond.
constexpr uint32_t kLoadsInFlight = 4;

/** Where the words of a copy are. Numbers of 32 bits: a division of longer ones takes as long as a load. */
template <typename Word>
class Words {
public:
    explicit __device__ Words(const RowCopy &copy)
        : copy_(copy), per_row_(static_cast<uint32_t>(copy.length / sizeof(Word))) {}

    __device__ uint32_t count() const { return per_row_ * static_cast<uint32_t>(copy_.rows); }
    __device__ const Word &source(uint32_t index) const {
        return *at(copy_.source, copy_.source_pitch, index);
    }
    __device__ Word &destination(uint32_t index) const {
        return *at(copy_.destination, copy_.destination_pitch, index);
    }

private:
    __device__ Word *at(uint64_t address, uint64_t pitch, uint32_t index) const {
        const uint32_t row = index / per_row_;
        return reinterpret_cast<Word *>(address + row * pitch) + (index - row * per_row_);
    }

    const RowCopy &copy_;
    const uint32_t per_row_;
};

/** All blocks of a copy together; neighbouring threads take neighbouring words. */
template <typename Word>
__device__ void copy_words(const RowCopy &copy) {
    const Words<Word> words(copy);
    const uint32_t threads = gridDim.x * blockDim.x;
    const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x;
    for (uint32_t begin = first; begin < words.count(); begin += kLoadsInFlight * threads) {
        Word values[kLoadsInFlight];
#pragma unroll
        for (uint32_t i = 0; i < kLoadsInFlight; ++i) {
            if (begin + i * threads < words.count()) {
                values[i] = words.source(begin + i * threads);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < kLoadsInFlight; ++i) {
            if (begin + i * threads < words.count()) {
                words.destination(begin + i * threads) = values[i];
            }
        }
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(gpushm::kRowCopyThreads)
    gpushm_copy_rows(const gpushm::RowCopies copies) {
    const RowCopy &copy = copies.copy[blockIdx.y];
    switch (gpushm::word_bytes(copy)) {
    case 16:
        return copy_words<uint4>(copy);
    case 8:
        return copy_words<uint64_t>(copy);
    case 4:
        return copy_words<uint32_t>(copy);
    case 2:
        return copy_words<uint16_t>(copy);
    default:
        return copy_words<uint8_t>(copy);
    }
}
