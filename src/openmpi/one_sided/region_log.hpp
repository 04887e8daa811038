// SPDX-License-Identifier: BSD-3-Clause
// How a process tells the others what memory it has attached to a dynamic window: a log of
// attachments and detachments in its memory, which the others read with ucp_get.
//
// One process writes and any number of processes read at any time. A get is not atomic: what it
// copies may be a mixture of several moments. The protocol:
//
// - The writer makes `sequence` odd, changes the header, and makes `sequence` even. The sequence
//   never goes back.
// - Records lie in the current log before `bytes` counts them. They do not change while `epoch`
//   does not.
// - After a full log the writer begins another one, with all that is attached at that moment.
//   `epoch` counts the logs. A log that was left may be written again in a later epoch.
// - The descriptor of a log is written once, before a header names the log.
// - Two copies of the header are consistent if they are equal and even, and the second was begun
//   after the first was complete. A later copy that equals such a pair is consistent, too.
// - Copied records are valid if `epoch` is unchanged afterwards.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpushm::openmpi {

constexpr size_t kMaxKeyBytes = 2032;  // of a packed remote key of UCX

/** A packed remote key of UCX for memory at `address` of the process that packed it. */
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

/** The logs of a window come in pairs of equal size. The writer alternates between the two until it
 * needs a larger pair. */
constexpr uint64_t kLogs = 16;
constexpr size_t log_size(uint64_t log) {
    return static_cast<size_t>(16 << 10) << (2 * (log / 2));
}

/** The memory that readers get first. Its address and remote key are exchanged when the window is
 * made. */
struct RegionIndex {
    LogHeader header;
    PackedRegion logs[kLogs];
};

/** A packed remote key of `key_bytes` bytes follows, padded to a multiple of 8. */
struct LogRecord {
    uint64_t id;  // of this attachment, unique in the window
    uint64_t address;
    uint64_t length;
    uint32_t key_bytes;
    uint32_t is_attached;  // 0: it was detached, and no key follows
};

constexpr size_t record_size(size_t key_bytes) {
    return sizeof(LogRecord) + (key_bytes + 7) / 8 * 8;
}

}  // namespace gpushm::openmpi
