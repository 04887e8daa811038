// SPDX-License-Identifier: BSD-3-Clause
// Changes functions of other libraries, with what libucm has for that.
#include "core/memory_map.hpp"
#include "uct_gpushm/abi/abi.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>

namespace gpushm::abi {
namespace {

#if defined(__x86_64__)

/** Jumps that lie near a function. libucm puts one of 5 bytes into the function when its hook is
 *  less than 2 GB away, otherwise one of 12 bytes, for which it has to move instructions that it
 *  did not know before UCX 1.19 (src/ucm/bistro/bistro_x86_64.c, ucm_bistro_relocate_one): so the
 *  jump goes to a page near the function, and from there to the hook. */
class NearJumps {
public:
    /** Code near `function` that jumps to `target`; null when there is no room. */
    void *make(const void *function, void *target);

private:
    static constexpr size_t kJumpBytes = 16;

    bool reserve(uintptr_t function);
    bool has_room_near(uintptr_t function) const;

    // One page, mapped twice: code that may run is never writable.
    unsigned char *code_ = nullptr;
    unsigned char *writable_ = nullptr;
    size_t used_ = 0;  // bytes
};

constexpr uintptr_t kReach = (uintptr_t{1} << 31) - (uintptr_t{1} << 24);

uintptr_t distance(uintptr_t a, uintptr_t b) { return a < b ? b - a : a - b; }

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

/** Maps a page of code into a gap between two mappings that is near enough, or MAP_FAILED. CUDA
 *  takes address space by the gigabyte, so that there may be only small ones. */
void *map_code_near(uintptr_t function, int file) {
    const size_t page = page_bytes();
    uintptr_t last_end = 0;
    void *found = MAP_FAILED;
    for_each_mapping([&](const MemoryMapping &mapping) {
        // At the end of the gap: what grows upwards is left alone. A stack grows downwards.
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

bool NearJumps::reserve(uintptr_t function) {
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
    return true;
}

bool NearJumps::has_room_near(uintptr_t function) const {
    return code_ != nullptr && used_ + kJumpBytes <= page_bytes() &&
           distance(reinterpret_cast<uintptr_t>(code_), function) < kReach;
}

void *NearJumps::make(const void *function, void *target) {
    const auto place = reinterpret_cast<uintptr_t>(function);
    if (!has_room_near(place) && !reserve(place)) {
        return nullptr;
    }
    constexpr unsigned char kJump[] = {0xff, 0x25, 0, 0, 0, 0};  // jmp *0(%rip)
    static_assert(sizeof(kJump) + sizeof(target) <= kJumpBytes);
    memcpy(writable_ + used_, kJump, sizeof(kJump));
    memcpy(writable_ + used_ + sizeof(kJump), &target, sizeof(target));
    void *jump = code_ + used_;
    used_ += kJumpBytes;
    return jump;
}

#else

/** Elsewhere libucm's jumps reach everywhere. */
class NearJumps {
public:
    void *make(const void *, void *target) { return target; }
};

#endif

}  // namespace

bool patch_function(void *function, void *hook, const char *name, void **original) {
    static std::mutex mutex;
    static NearJumps jumps;
    const std::lock_guard<std::mutex> lock(mutex);
    if (symbols().ucm_bistro_patch == nullptr) {
        return false;
    }
    void *const jump = jumps.make(function, hook);
    return symbols().ucm_bistro_patch(function, jump != nullptr ? jump : hook, name, original,
                                      nullptr) == UCS_OK;
}

}  // namespace gpushm::abi
