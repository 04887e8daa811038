// SPDX-License-Identifier: BSD-3-Clause
// Copies within a GPU, unless the copy was cancelled before its first block began. The driver
// copies within a GPU by kernels, too, but nobody can cancel those once they are in a stream.
#include "core/kernels/cancellable_copy_kernel.hpp"

extern "C" {
__device__ gpushm::Cancellation gpushm_cancellations[gpushm::kCancellations];
}

namespace {

using gpushm::CancellableCopy;
using gpushm::Cancellation;

// Of 16 bytes.
constexpr uint32_t kWordsPerThread =
    gpushm::kCancellableCopyBytes / gpushm::kCancellableCopyThreads / 16;

/** Two neighbouring words of Cancellation: the one at the lower address is the lower half. */
__device__ uint64_t *pair_at(uint32_t *low) {
    return reinterpret_cast<uint64_t *>(low);
}
__device__ uint32_t low_of(uint64_t pair) {
    return static_cast<uint32_t>(pair);
}
__device__ uint32_t high_of(uint64_t pair) {
    return static_cast<uint32_t>(pair >> 32);
}
__device__ uint64_t load(uint64_t *pair) {
    return *reinterpret_cast<volatile uint64_t *>(pair);
}

/** Called by the block that begins first, which has read `cancelled` before all others. */
__device__ void decide(const CancellableCopy &copy, Cancellation &state, bool cancelled) {
    uint64_t *decision = pair_at(&state.decided);
    const uint32_t wanted = cancelled ? high_of(load(decision)) : copy.number;
    *reinterpret_cast<volatile uint64_t *>(decision) = uint64_t{wanted} << 32 | copy.number;
}

/** What the first block has decided, or will decide in a moment: it runs. */
__device__ bool was_wanted(const CancellableCopy &copy, Cancellation &state) {
    uint64_t decision = load(pair_at(&state.decided));
    while (low_of(decision) != copy.number) {
        decision = load(pair_at(&state.decided));
    }
    return high_of(decision) == copy.number;
}

/** Whether the block is to copy. One thread of each block asks, once. */
__device__ bool is_wanted(const CancellableCopy &copy) {
    Cancellation &state = *reinterpret_cast<Cancellation *>(copy.cancellation);
    const uint64_t before =
        atomicAdd(reinterpret_cast<unsigned long long *>(pair_at(&state.cancelled)), 1ull << 32);
    const bool cancelled = gpushm::is_cancelled(low_of(before), copy.number);
    if (high_of(before) == copy.begun_before) {
        decide(copy, state, cancelled);
        return !cancelled;
    }
    // If this block finds that the copy is not cancelled, the first block found that, too.
    return !cancelled || was_wanted(copy, state);
}

/** Words of 16 bytes at an address that is a multiple of 16. */
class AlignedWords {
public:
    explicit __device__ AlignedWords(uint64_t address)
        : words_(reinterpret_cast<const uint4 *>(address)) {}
    __device__ uint4 operator[](uint64_t index) const { return words_[index]; }

private:
    const uint4 *words_;
};

/** Words of 16 bytes at any address, composed of aligned words of 4. Reads up to 3 bytes before and
 * behind them. */
class ShiftedWords {
public:
    explicit __device__ ShiftedWords(uint64_t address)
        : words_(reinterpret_cast<const uint32_t *>(address & ~uint64_t{3})),
          bits_(static_cast<uint32_t>(address & 3) * 8) {}
    __device__ uint4 operator[](uint64_t index) const {
        const uint32_t *part = &words_[4 * index];
        const uint32_t last = bits_ != 0 ? part[4] : 0;
        return {__funnelshift_r(part[0], part[1], bits_), __funnelshift_r(part[1], part[2], bits_),
                __funnelshift_r(part[2], part[3], bits_), __funnelshift_r(part[3], last, bits_)};
    }

private:
    const uint32_t *words_;
    uint32_t bits_;
};

/** Copies by all threads of the first block. */
__device__ void copy_bytes(uint64_t destination, uint64_t source, uint64_t length) {
    for (uint64_t i = threadIdx.x; blockIdx.x == 0 && i < length; i += blockDim.x) {
        reinterpret_cast<uint8_t *>(destination)[i] = reinterpret_cast<const uint8_t *>(source)[i];
    }
}

/** is_wanted(), for all threads of a block. */
__device__ bool block_is_wanted(const CancellableCopy &copy) {
    __shared__ bool wanted;
    if (threadIdx.x == 0) {
        wanted = is_wanted(copy);
    }
    __syncthreads();
    return wanted;
}

/** Copies `count` words, and the bytes before and behind them. Without asks_first the words are
 * loaded while the atomic operation of is_wanted() is under way. */
template <typename Source>
__device__ void copy_words(const CancellableCopy &copy, uint64_t head, uint64_t count) {
    const bool asks_first = copy.asks_first != 0;
    if (asks_first && !block_is_wanted(copy)) {
        return;
    }
    const Source source(copy.source + head);
    auto *destination = reinterpret_cast<uint4 *>(copy.destination + head);
    const uint64_t begin = uint64_t{blockIdx.x} * blockDim.x * kWordsPerThread + threadIdx.x;
    uint4 words[kWordsPerThread];
#pragma unroll
    for (uint32_t i = 0; i < kWordsPerThread; ++i) {
        if (begin + i * blockDim.x < count) {
            words[i] = source[begin + i * blockDim.x];
        }
    }
    if (!asks_first && !block_is_wanted(copy)) {
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < kWordsPerThread; ++i) {
        if (begin + i * blockDim.x < count) {
            destination[begin + i * blockDim.x] = words[i];
        }
    }
    const uint64_t behind = head + count * 16;
    copy_bytes(copy.destination, copy.source, head);
    copy_bytes(copy.destination + behind, copy.source + behind, copy.length - behind);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(gpushm::kCancellableCopyThreads)
    gpushm_copy_unless_cancelled(const CancellableCopy copy) {
    // ShiftedWords read 3 bytes more at either end. So 3 bytes more are left to copy_bytes() there.
    const bool alike = (copy.destination - copy.source) % 16 == 0;
    const uint64_t to_boundary = (16 - copy.destination % 16) % 16;
    const uint64_t head = alike || to_boundary >= 3 ? to_boundary : to_boundary + 16;
    const uint64_t tail = alike ? 0 : 3;
    const uint64_t count = copy.length > head + tail ? (copy.length - head - tail) / 16 : 0;
    if (alike) {
        copy_words<AlignedWords>(copy, count > 0 ? head : 0, count);
    } else {
        copy_words<ShiftedWords>(copy, count > 0 ? head : 0, count);
    }
}
