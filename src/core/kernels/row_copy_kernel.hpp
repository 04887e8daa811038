// SPDX-License-Identifier: BSD-3-Clause
// The parameters of the kernel of row_copy_kernel.cu: copies of rows, by value or in page-locked
// host memory. The CPU writes that memory before the launch and leaves it alone until the kernel
// has ended. The launch is the only synchronisation (CUDA C++ Programming Guide, "Page-Locked Host
// Memory"). All copies are made when the kernel has ended.
#pragma once

#include <cstdint>

namespace gpushm {

constexpr char kRowCopyKernelName[] = "gpushm_copy_rows";
constexpr uint32_t kRowCopyThreads = 256;  // of a block
// Copies by value. Longer parameters make a launch slower: doc/decisions/copy-many-pieces.md.
constexpr uint32_t kMaxRowCopyParameters = 12;

// The most words of a copy (word_bytes()) that the kernel can count, with room for threads that
// pass the end.
constexpr uint64_t kMaxRowCopyWords = uint64_t{1} << 31;

/** `rows` times `length` bytes; the addresses of rows lie at equal distances. */
struct RowCopy {
    uint64_t destination;
    uint64_t source;
    uint64_t length;
    uint64_t rows;
    uint64_t destination_pitch;  // of no meaning if there is one row
    uint64_t source_pitch;
};

/** The threads of each block form groups of threads_per_copy. Group g of the blocks with equal
 * blockIdx.y makes copy blockIdx.y * groups + g, all these blocks together, and then every
 * (gridDim.y * groups)th copy behind that. Copies do not overlap. */
struct RowCopies {
    uint64_t count;
    uint64_t list;              // address of as many RowCopy for the GPU; 0: `copy`
    uint32_t threads_per_copy;  // of a block; divides kRowCopyThreads
    uint32_t unused;
    RowCopy copy[kMaxRowCopyParameters];
};

/** Bytes of the words by which the kernel copies: the widest to which every address and length is
 * aligned. */
#ifdef __CUDACC__
__host__ __device__
#endif
    inline uint32_t
    word_bytes(const RowCopy &copy) {
    uint64_t bits = copy.destination | copy.source | copy.length | 16;
    if (copy.rows > 1) {
        bits |= copy.destination_pitch | copy.source_pitch;
    }
    return static_cast<uint32_t>(bits & (~bits + 1));
}

/** The number of words of the whole copy. */
inline uint64_t words_of(const RowCopy &copy) {
    return copy.length / word_bytes(copy) * copy.rows;
}

}  // namespace gpushm
