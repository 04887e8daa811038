// SPDX-License-Identifier: BSD-3-Clause
// What is mapped in this process.
#pragma once

#include <cstdint>
#include <functional>

namespace gpushm {

/** A line of /proc/self/maps (proc(5)). */
struct MemoryMapping {
    uintptr_t begin;
    uintptr_t end;
    bool readable;
    bool writable;
    bool shared;
    const char *path;  // a file, a name in brackets, or empty; valid during the visit
};

/** Calls `visit` for each mapping, in the order of addresses, until it returns false. Mappings that
 * are made meanwhile may be missing. Allocates. False when the file cannot be read. Thread safe. */
bool for_each_mapping(const std::function<bool(const MemoryMapping &)> &visit);

}  // namespace gpushm
