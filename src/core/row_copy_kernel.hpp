// SPDX-License-Identifier: BSD-3-Clause
// What the kernel of row_copy_kernel.cu is given: copies of rows, by value, among its launch's parameters. It
// shares no memory with the CPU; who waits for the launch finds everything done.
#pragma once

#include <cstdint>

namespace gpushm {

constexpr char kRowCopyKernelName[] = "gpushm_copy_rows";
constexpr uint32_t kRowCopyThreads = 256;  // of a block
// So that they fit the 4 KiB of a launch's parameters (CUDA C++ Programming Guide, "__global__ Functions").
constexpr uint32_t kMostRowCopies = 64;

// Words of a copy (word_bytes()): what the kernel can count, with room for the threads that pass the end.
constexpr uint64_t kMostRowCopyWords = uint64_t{1} << 31;

/** `rows` times `length` bytes; the addresses of rows lie at equal distances. */
struct RowCopy {
    uint64_t destination;
    uint64_t source;
    uint64_t length;
    uint64_t rows;
    uint64_t destination_pitch;  // of no meaning where there is one row
    uint64_t source_pitch;
};

/** Block (x, y) of the grid works on copy y < `count`. Nothing overlaps. */
struct RowCopies {
    uint64_t count;
    RowCopy copy[kMostRowCopies];
};
static_assert(sizeof(RowCopies) <= 4096);

/** Bytes of the words in which the kernel copies: the widest that divide every address and length. */
#ifdef __CUDACC__
__host__ __device__
#endif
inline uint32_t word_bytes(const RowCopy &copy) {
    uint64_t bits = copy.destination | copy.source | copy.length | 16;
    if (copy.rows > 1) {
        bits |= copy.destination_pitch | copy.source_pitch;
    }
    return static_cast<uint32_t>(bits & (~bits + 1));
}

}  // namespace gpushm
