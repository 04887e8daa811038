// SPDX-License-Identifier: BSD-3-Clause
// What CPU and GPU say to each other of a copy within a GPU that may be taken back until it begins:
// the CPU by CancellableCopies, the GPU by the kernel of cancellable_copy_kernel.cu.
#pragma once

#include <cstdint>

namespace gpushm {

constexpr char kCancellableCopyKernelName[] = "gpushm_copy_unless_cancelled";
constexpr uint32_t kCancellableCopyThreads = 512;  // of a block
// That a block copies: 16 KiB. H200, 512 MiB: with these, the driver's copy, and less than all
// blocks, which copy in turn, 267, 262 and 282 us; other numbers of threads and bytes, 264 to 271.
constexpr uint32_t kCancellableCopyBytes = kCancellableCopyThreads * 32;

/** Array of kCancellations Cancellation in the module of the kernels, all 0 at first. */
constexpr char kCancellationsName[] = "gpushm_cancellations";
constexpr uint32_t kCancellations = 128;

/** Numbers of copies that are in a stream at a time differ by less. */
constexpr uint32_t kMaxCancellableCopies = 1u << 16;

/** Of the copies of one stream, which have numbers; 16 bytes in the memory of the GPU.
 *
 * Nobody reads or writes it but through the second-level cache of that GPU: the kernel by atomic
 * operations and volatile accesses, the CPU by copies of the driver (cuMemcpyAsync from and to
 * page-locked memory, one after the other in one stream of their own, which no kernel holds up).
 * `cancelled` and `begun` are one word of 8 bytes for the kernel, so that all that is done to them
 * has one order. Hence, after the CPU has written `cancelled` and read `begun`: a copy none of
 * whose blocks had begun is not made, for all will find it cancelled. Of others the CPU learns by
 * `wanted`, when the kernel has ended.
 *
 * A CPU that dies leaves kernels that end by themselves: a block waits only for another one that
 * has begun. */
struct alignas(16) Cancellation {
    uint32_t cancelled;  // the CPU: copies up to this number are not to begin; only when no more
                         // are in the stream
    uint32_t begun;      // each block adds 1 when it begins, of all copies: modulo 2^32
    uint32_t decided;  // the first block of each copy: the copy's number, with `wanted` as one word
                       // of 8 bytes
    uint32_t wanted;   // the last copy that was made
};

/** Whether copies up to `cancelled` include `number`: only those that can be in the stream with it.
 */
#ifdef __CUDACC__
__host__ __device__
#endif
    inline bool
    is_cancelled(uint32_t cancelled, uint32_t number) {
    return cancelled - number < kMaxCancellableCopies;
}

/** The kernel's only parameter. */
struct CancellableCopy {
    uint64_t destination;  // memory of the GPU, as is the source; they do not overlap
    uint64_t source;
    uint64_t length;        // bytes, not 0
    uint64_t cancellation;  // address of the stream's Cancellation
    uint32_t number;
    uint32_t begun_before;  // `begun` when the first block begins
    uint32_t blocks;        // of the grid
    uint32_t unused;
};

}  // namespace gpushm
