// SPDX-License-Identifier: BSD-3-Clause
// Which copies are given to the driver together (CopyJob::joint_bytes).
#pragma once

#include "core/memory/memory_info.hpp"

#include <cstddef>
#include <cstdint>

namespace gpushm {

// Bytes. Long copies that come together do not wait for one another's start. Of a window of
// messages those in the middle end later, and all of them together sooner. More would fill the ring
// with what waits for both engines (doc/decisions/joint-copies.md).
constexpr size_t kSmallestJointChunk = 256u << 10;
constexpr size_t kJointBytesOfChunks = 1u << 20;
constexpr size_t kLongestJointCopy = 4u << 20;
constexpr size_t kJointBytesOfGpus = 16u << 20;
constexpr size_t kJointBytesOfHost = 2u << 20;

/** CopyJob::joint_bytes of a chunk. 0 where its transfer has other chunks, which both sides copy in
 * turn. The engine collects shorter ones by itself, and the driver copies managed memory one after
 * the other. */
inline size_t joint_bytes_of_chunk(size_t length, uint64_t transfer_bytes, const MemoryInfo &info) {
    const bool joins = length >= kSmallestJointChunk && length == transfer_bytes &&
                       info.kind != MemoryKind::managed;
    return joins ? kJointBytesOfChunks : 0;
}

/** CopyJob::joint_bytes of a copy through a mapping. */
inline size_t joint_bytes_of_direct_copy(size_t row_bytes, size_t rows, bool one_gpu,
                                         bool with_host) {
    if (rows > 1 || row_bytes > kLongestJointCopy || one_gpu) {
        return 0;
    }
    return with_host ? kJointBytesOfHost : kJointBytesOfGpus;
}

}  // namespace gpushm
