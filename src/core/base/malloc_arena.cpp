// SPDX-License-Identifier: BSD-3-Clause
#include "core/base/malloc_arena.hpp"

#include "core/base/unique_fd.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace gpushm {
namespace {

/** The beginning of each heap of glibc since 2.15 (malloc/arena.c, heap_info). */
struct HeapInfo {
    uint64_t arena;  // malloc_state, behind the heap_info of the first heap
    uint64_t previous_heap;
    uint64_t size;
    uint64_t writable_size;  // may be less than `size` for a moment, while the heap shrinks

    bool is_plausible() const {
        constexpr uint64_t kLongestInfo = 256;  // 32 to 64 bytes by version
        return arena % kArenaHeapBytes != 0 && arena % kArenaHeapBytes <= kLongestInfo &&
               previous_heap % kArenaHeapBytes == 0 && is_size(size) && is_size(writable_size);
    }

private:
    static bool is_size(uint64_t bytes) {
        constexpr uint64_t kPage = 4096;
        return bytes != 0 && bytes % kPage == 0 && bytes <= kArenaHeapBytes;
    }
};

}  // namespace

bool malloc_takes_huge_pages() {
    static constexpr char kName[] = "glibc.malloc.hugetlb=";
    const char *tunables = getenv("GLIBC_TUNABLES");
    const char *found = tunables == nullptr ? nullptr : strstr(tunables, kName);
    return found != nullptr && strtoul(found + strlen(kName), nullptr, 0) >= 2;
}

std::optional<bool> is_arena_heap(uintptr_t address) {
    // The system reads it: it may be unmapped at any time.
    const UniqueFd memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
    if (!memory) {
        return std::nullopt;
    }
    HeapInfo info;
    const ssize_t got = pread(memory.get(), &info, sizeof(info), static_cast<off_t>(address));
    if (got == static_cast<ssize_t>(sizeof(info))) {
        return info.is_plausible();
    }
    return got < 0 && errno == EIO ? std::optional<bool>(false) : std::nullopt;
}

}  // namespace gpushm
