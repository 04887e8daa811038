// SPDX-License-Identifier: BSD-3-Clause
// Code of ours that lies so near a function of another library that the function can jump to it by
// 32 bits.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace gpushm {

/** Hands out room on pages of code. Each page is mapped twice: code that may run is never writable.
 * Nothing is given back. Not thread safe. */
class NearCode {
public:
    /** Both show the same bytes: `code` is for execution and null where there is no room,
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
    pid_t owner_ =
        -1;  // a child that was forked shares the page with its parent, and leaves the rest to it
};

constexpr size_t kFarJumpBytes = 14;

/** Writes the code of a jump to any address, as x86-64 has it. */
void write_far_jump(unsigned char *place, const void *target);

}  // namespace gpushm
