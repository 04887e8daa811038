// SPDX-License-Identifier: BSD-3-Clause
#include "core/lockable_memory.hpp"

#include "core/cross_memory.hpp"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace gpushm {
namespace {

/** How glibc begins each heap of a thread's arena (malloc/arena.c, heap_info; the same since 2.15). */
struct HeapInfo {
    uint64_t arena;  // malloc_state, behind the heap_info of the first heap
    uint64_t previous_heap;
    uint64_t size;
    uint64_t writable_size;

    static constexpr uint64_t kAlignment = 64u << 20;  // HEAP_MAX_SIZE

    bool is_plausible() const {
        constexpr uint64_t kLongestInfo = 256;  // 32 to 64 bytes by version
        constexpr uint64_t kPage = 4096;
        return arena % kAlignment != 0 && arena % kAlignment <= kLongestInfo &&
               previous_heap % kAlignment == 0 && size != 0 && size % kPage == 0 &&
               size <= writable_size && writable_size % kPage == 0 && writable_size <= kAlignment;
    }
};

/** Whether `address`, in a mapping that begins at `mapped_from`, is within a heap of an arena. The kernel joins such
 *  a heap with what is mapped below it, and begins large mappings of others at round addresses too. */
bool is_in_arena(uintptr_t address, uintptr_t mapped_from) {
    const uintptr_t heap = address - address % HeapInfo::kAlignment;
    HeapInfo info;
    // By a system call, for it may be unmapped now, or never have been mapped.
    if (!read_memory(getpid(), &info, heap, sizeof(info))) {
        return mapped_from <= heap;
    }
    return info.is_plausible();
}

}  // namespace

bool may_be_locked(uintptr_t begin, uintptr_t end) {
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == nullptr) {
        return false;
    }
    bool possible = false;
    char line[512];
    while (fgets(line, sizeof(line), maps) != nullptr) {
        uintptr_t from = 0;
        uintptr_t to = 0;
        char access[8] = "";
        int path_at = 0;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s %*s %*s %*s %n", &from, &to, access,
                   &path_at) >= 3 &&
            begin >= from && begin < to) {
            const char *path = line + path_at;
            possible = end <= to && access[0] == 'r' && access[1] == 'w' && path[0] != '[' &&
                       strncmp(path, "/dev/", 5) != 0 && !is_in_arena(begin, from);
        }
    }
    fclose(maps);
    return possible;
}

}  // namespace gpushm
