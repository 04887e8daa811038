// SPDX-License-Identifier: BSD-3-Clause
// Memory for code of ours that lies near a function of another library, so that the function can
// jump to it by a 32-bit offset.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace gpushm {

/** Hands out room on pages of code. Each page is mapped twice, so that no mapping is both
 * executable and writable. Room is never given back. Not thread safe. */
class NearCode {
public:
    /** Two addresses of the same bytes: `code` is executable, and null where there is no room;
     * `writable` is for writing. */
    struct Room {
        unsigned char *code = nullptr;
        unsigned char *writable = nullptr;
    };

    /** Room for `bytes`, at most a page, whose every byte is less than 2 GB away from each byte of
     * `function` and of the 16 MB around it. */
    Room take(const void *function, size_t bytes);

private:
    bool reserve(uintptr_t function);
    bool has_room_near(uintptr_t function, size_t bytes) const;

    unsigned char *code_ = nullptr;
    unsigned char *writable_ = nullptr;
    size_t used_ = 0;  // bytes
    // A forked child shares the page with its parent, and leaves the rest of it to the parent.
    pid_t owner_ = -1;
};

constexpr size_t kFarJumpBytes = 14;

/** Writes the code of a jump to any address, as x86-64 has it. */
void write_far_jump(unsigned char *place, const void *target);

}  // namespace gpushm
