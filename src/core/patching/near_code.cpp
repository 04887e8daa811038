// SPDX-License-Identifier: BSD-3-Clause
#include "core/patching/near_code.hpp"

#include "core/base/memory_map.hpp"

#include <sys/mman.h>
#include <unistd.h>

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

/** Maps a page of code into a gap between two mappings that is near enough, or returns MAP_FAILED.
 * CUDA takes address space by the gigabyte, so there may be only small gaps. */
void *map_code_near(uintptr_t function, int file) {
    const size_t page = page_bytes();
    uintptr_t last_end = 0;
    void *found = MAP_FAILED;
    for_each_mapping([&](const MemoryMapping &mapping) {
        // At the end of the gap: mappings that grow upwards are left alone, and a stack grows
        // downwards.
        const uintptr_t place = mapping.begin - page;
        const bool may_grow = strncmp(mapping.path, "[stack", 6) == 0;
        if (last_end != 0 && mapping.begin - last_end > 2 * page && !may_grow &&
            distance(place, function) < kReach) {
            found = mmap(reinterpret_cast<void *>(place), page, PROT_READ | PROT_EXEC,
                         MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
        }
        last_end = mapping.end;
        return found == MAP_FAILED;
    });
    if (found != MAP_FAILED && distance(reinterpret_cast<uintptr_t>(found), function) >= kReach) {
        munmap(found, page);  // Linux before 4.17 takes the place for a hint
        return MAP_FAILED;
    }
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
