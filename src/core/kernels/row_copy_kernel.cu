// SPDX-License-Identifier: BSD-3-Clause
// Copies the pieces of derived datatypes: many short pieces, anywhere in memory that the GPU
// reaches.
#include "core/kernels/row_copy_kernel.hpp"

namespace {

using gpushm::RowCopies;
using gpushm::RowCopy;

// Loads that a thread has in flight: memory of the host and of peers answers after a microsecond.
constexpr uint32_t kLoadsInFlight = 4;

/** Where the words of a copy are. Counts in 32 bits, because a division of longer numbers takes as
 * long as a load. */
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

/** Copies by all threads of a copy together; each block has a group of them. Neighbouring threads
 * take neighbouring words. */
template <typename Word>
__device__ void copy_words(const RowCopy &copy, uint32_t group) {
    const Words<Word> words(copy);
    const uint32_t threads = gridDim.x * group;
    const uint32_t first = blockIdx.x * group + threadIdx.x % group;
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

__device__ void copy_rows(const RowCopy &copy, uint32_t group) {
    switch (gpushm::word_bytes(copy)) {
        case 16:
            return copy_words<uint4>(copy, group);
        case 8:
            return copy_words<uint64_t>(copy, group);
        case 4:
            return copy_words<uint32_t>(copy, group);
        case 2:
            return copy_words<uint16_t>(copy, group);
        default:
            return copy_words<uint8_t>(copy, group);
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(gpushm::kRowCopyThreads)
    gpushm_copy_rows(const RowCopies copies) {
    const auto *list =
        copies.list != 0 ? reinterpret_cast<const RowCopy *>(copies.list) : copies.copy;
    const uint32_t group = copies.threads_per_copy;
    const uint32_t groups = blockDim.x / group;
    for (uint64_t index = blockIdx.y * groups + threadIdx.x / group; index < copies.count;
         index += gridDim.y * groups) {
        const RowCopy copy = list[index];
        copy_rows(copy, group);
    }
}
