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
    const char *path;  // of a file, a name in brackets, or empty; valid while it is visited
};

/** Calls `visit` for each, in the order of their addresses, until it returns false. What is mapped
 * meanwhile may be missing. Allocates. False when they cannot be read. Thread safe. */
bool for_each_mapping(const std::function<bool(const MemoryMapping &)> &visit);

}  // namespace gpushm
