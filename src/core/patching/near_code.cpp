// SPDX-License-Identifier: BSD-3-Clause
#include "core/patching/near_code.hpp"

#include "core/base/memory_map.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace gpushm {
namespace {

constexpr uintptr_t kReach = (uintptr_t{1} << 31) - (uintptr_t{1} << 24);

uintptr_t distance(uintptr_t a, uintptr_t b) {
    return a < b ? b - a : a - b;
}

size_t page_bytes() {
    return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

/** Space between two mappings. */
struct Gap {
    uintptr_t begin;
    uintptr_t end;
    bool is_above_heap;  // which grows upwards

    /** `stack_bytes` are left to a stack above the gap, which grows downwards. */
    void leave_to_stack(uintptr_t stack_bytes) { end -= std::min(stack_bytes, end - begin); }
    bool has_room(size_t bytes) const { return end - begin > 2 * bytes; }
};

/** The page at `place`, if it is near enough and free; else MAP_FAILED. */
void *map_code_at(uintptr_t place, uintptr_t function, int file) {
    if (distance(place, function) >= kReach) {
        return MAP_FAILED;
    }
    const size_t page = page_bytes();
    void *const found = mmap(reinterpret_cast<void *>(place), page, PROT_READ | PROT_EXEC,
                             MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
    if (found != MAP_FAILED && distance(reinterpret_cast<uintptr_t>(found), function) >= kReach) {
        munmap(found, page);  // Linux before 4.17 takes the place for a hint
        return MAP_FAILED;
    }
    return found;
}

/** Maps a page of code into a gap between two mappings that is near enough, or returns MAP_FAILED.
 * CUDA takes address space by the gigabyte below the libraries, so there may be small gaps only, or
 * none but the one between the libraries and the stack, whose end is far away. */
void *map_code_near(uintptr_t function, int file) {
    constexpr uintptr_t kStackBytes = uintptr_t{64} << 20;
    const size_t page = page_bytes();
    Gap gap = {};
    void *found = MAP_FAILED;
    for_each_mapping([&](const MemoryMapping &mapping) {
        gap.end = std::max(gap.begin, mapping.begin);
        if (strncmp(mapping.path, "[stack", 6) == 0) {
            gap.leave_to_stack(kStackBytes);
        }
        if (gap.begin != 0 && gap.has_room(page)) {
            found = map_code_at(gap.end - page, function, file);
            if (found == MAP_FAILED && !gap.is_above_heap) {
                found = map_code_at(gap.begin, function, file);
            }
        }
        gap = {mapping.end, 0, strcmp(mapping.path, "[heap]") == 0};
        return found == MAP_FAILED;
    });
    return found;
}

}  // namespace

bool NearCode::reserve(uintptr_t function) {
    const size_t page = page_bytes();
    const int file = memfd_create("gpushm jumps", MFD_CLOEXEC);
    if (file < 0) {
        return false;
    }
    void *writable = MAP_FAILED;
    void *code = MAP_FAILED;
    if (ftruncate(file, static_cast<off_t>(page)) == 0) {
        writable = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        code = map_code_near(function, file);
    }
    close(file);
    if (writable == MAP_FAILED || code == MAP_FAILED) {
        return false;  // a page at most stays behind
    }
    writable_ = static_cast<unsigned char *>(writable);
    code_ = static_cast<unsigned char *>(code);
    used_ = 0;
    owner_ = getpid();
    return true;
}

bool NearCode::has_room_near(uintptr_t function, size_t bytes) const {
    return owner_ == getpid() && used_ + bytes <= page_bytes() &&
           distance(reinterpret_cast<uintptr_t>(code_), function) < kReach;
}

NearCode::Room NearCode::take(const void *function, size_t bytes) {
    const auto place = reinterpret_cast<uintptr_t>(function);
    if (!has_room_near(place, bytes) && !reserve(place)) {
        return {};
    }
    const Room room = {code_ + used_, writable_ + used_};
    used_ += bytes;
    return room;
}

void write_far_jump(unsigned char *place, const void *target) {
    constexpr unsigned char kJump[] = {0xff, 0x25, 0, 0, 0, 0};  // jmp *0(%rip)
    static_assert(sizeof(kJump) + sizeof(target) == kFarJumpBytes);
    memcpy(place, kJump, sizeof(kJump));
    memcpy(place + sizeof(kJump), &target, sizeof(target));
}

}  // namespace gpushm
