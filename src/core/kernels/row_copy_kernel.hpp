// SPDX-License-Identifier: BSD-3-Clause
// What the kernel of row_copy_kernel.cu is given: copies of rows, among its launch's parameters or
// in page-locked host memory, which the CPU has written before the launch and leaves alone until it
// has ended: the launch is the only synchronisation (CUDA C++ Programming Guide, "Page-Locked Host
// Memory"). Who waits for it finds everything done.
#pragma once

#include <cstdint>

namespace gpushm {

constexpr char kRowCopyKernelName[] = "gpushm_copy_rows";
constexpr uint32_t kRowCopyThreads = 256;  // of a block
// Among the parameters, of which 3 KiB more make a launch 1 us longer (H200).
constexpr uint32_t kMaxRowCopyParameters = 12;

// Words of a copy (word_bytes()): what the kernel can count, with room for the threads that pass
// the end.
constexpr uint64_t kMaxRowCopyWords = uint64_t{1} << 31;

/** `rows` times `length` bytes; the addresses of rows lie at equal distances. */
struct RowCopy {
    uint64_t destination;
    uint64_t source;
    uint64_t length;
    uint64_t rows;
    uint64_t destination_pitch;  // of no meaning where there is one row
    uint64_t source_pitch;
};

/** Blocks (0..., y) of the grid work on as many copies as they have groups of threads, then on
 * those of all rows of the grid behind them. Nothing overlaps. */
struct RowCopies {
    uint64_t count;
    uint64_t list;              // address of as many RowCopy for the GPU; 0: `copy`
    uint32_t threads_per_copy;  // of a block; divides kRowCopyThreads
    uint32_t unused;
    RowCopy copy[kMaxRowCopyParameters];
};

/** Bytes of the words in which the kernel copies: the widest that divide every address and length.
 */
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

/** Of the whole copy. */
inline uint64_t words_of(const RowCopy &copy) {
    return copy.length / word_bytes(copy) * copy.rows;
}

}  // namespace gpushm
