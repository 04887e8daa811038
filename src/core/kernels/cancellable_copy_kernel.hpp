// SPDX-License-Identifier: BSD-3-Clause
// What a CPU and a GPU share for a copy within the GPU that can be cancelled until it begins. The
// CPU's side is CancellableCopies, the GPU's the kernel of cancellable_copy_kernel.cu.
#pragma once

#include <cstdint>

namespace gpushm {

constexpr char kCancellableCopyKernelName[] = "gpushm_copy_unless_cancelled";
constexpr uint32_t kCancellableCopyThreads = 512;  // of a block
// Of a block: 16 KiB. See doc/decisions/copy-within-a-gpu.md.
constexpr uint32_t kCancellableCopyBytes = kCancellableCopyThreads * 32;

/** An array of kCancellations elements of type Cancellation in the module of the kernels, all 0 at
 * first. */
constexpr char kCancellationsName[] = "gpushm_cancellations";
constexpr uint32_t kCancellations = 128;

/** Numbers of copies that are in a stream at a time differ by less. */
constexpr uint32_t kMaxCancellableCopies = 1u << 16;

/** The state of the copies of one stream, which have numbers: 16 bytes in the memory of the GPU.
 *
 * All accesses go through the second-level cache of that GPU. The kernel accesses the words by
 * atomic operations and volatile accesses, the CPU by copies of the driver (cuMemcpyAsync from and
 * to page-locked memory, one after the other in a stream of their own, which no kernel holds up).
 * `cancelled` and `begun` are one word of 8 bytes for the kernel, so that all accesses to them have
 * one order. Hence, once the CPU has written `cancelled` and then read `begun`: a copy of which no
 * block had begun is not made, because all its blocks will find it cancelled. Whether another copy
 * was made the CPU learns from `wanted`, when its kernel has ended.
 *
 * If the CPU dies, the kernels end by themselves: a block waits only for another one that has
 * begun.
 */
struct alignas(16) Cancellation {
    // Written by the CPU: copies up to this number are not to begin. None with a higher number is
    // in the stream.
    uint32_t cancelled;
    // Each block of each copy adds 1 when it begins. Modulo 2^32.
    uint32_t begun;
    // Written by the first block of each copy, together with `wanted` as one word of 8 bytes: the
    // copy's number.
    uint32_t decided;
    // The last copy that was made.
    uint32_t wanted;
};

/** Whether copies up to `cancelled` include `number`. `cancelled` counts only for numbers that can
 * be in the stream with it. */
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
    uint32_t begun_before;  // the value of `begun` when the first block begins
    uint32_t blocks;        // of the grid
    uint32_t asks_first;    // 1: a copy that is cancelled reads nothing of the source
};

}  // namespace gpushm
