// SPDX-License-Identifier: BSD-3-Clause
// What a process tells the others of the memory that it has attached to a dynamic window: a log of
// attachments and detachments in its memory, which the others read by ucp_get.
//
// One process writes, any number read at any time, and a get is not atomic: a copy may be of
// several moments. So:
//   - the writer makes `sequence` odd, changes the header, and makes it even; it never goes back
//   - records lie in the current log before `bytes` counts them, and stay unchanged while `epoch`
//   is the same
//   - a log that is full is followed by another one, which begins with what is attached then;
//   `epoch` counts them,
//     and a log that was left may be written over in a later epoch. A log's descriptor is written
//     before the header names the log, and never again
//   - two copies of the header, the second begun when the first was complete, are of one moment if
//   they are equal
//     and even; a copy that equals such a pair is also
//   - records that were copied are good if `epoch` is the same afterwards
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpushm::openmpi {

constexpr size_t kMaxKeyBytes = 2032;  // of a packed remote key of UCX

/** A remote key of UCX, packed, for memory at `address` of the process that it comes from. */
struct PackedRegion {
    uint64_t address = 0;
    uint64_t key_bytes = 0;
    unsigned char key[kMaxKeyBytes] = {};
};

struct LogHeader {
    uint64_t sequence = 0;
    uint64_t epoch = 0;
    uint64_t log = 0;    // number of the current log
    uint64_t bytes = 0;  // of records in it
};

/** The logs of a window come in pairs of the same size, which follow each other until what is
 * attached needs more. */
constexpr uint64_t kLogs = 16;
constexpr size_t log_size(uint64_t log) {
    return static_cast<size_t>(16 << 10) << (2 * (log / 2));
}

/** What readers find; its address and remote key are exchanged when the window is made. */
struct RegionIndex {
    LogHeader header;
    PackedRegion logs[kLogs];
};

/** `key_bytes` bytes of a packed remote key follow, and what fills the last eight. */
struct LogRecord {
    uint64_t id;  // of this attachment, never used again in the window
    uint64_t address;
    uint64_t length;
    uint32_t key_bytes;
    uint32_t is_attached;  // 0: not any more; then there is no key
};

constexpr size_t record_size(size_t key_bytes) {
    return sizeof(LogRecord) + (key_bytes + 7) / 8 * 8;
}

}  // namespace gpushm::openmpi
