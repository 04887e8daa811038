// SPDX-License-Identifier: BSD-3-Clause
// System calls that no function of the C library makes, as the real driver's: who watches those
// functions, syscall() among them, does not see them.
#pragma once

#include <cerrno>
#include <sys/syscall.h>
#include <unistd.h>

namespace simcuda {

#if defined(__x86_64__)

inline long raw_system_call(long number, long a, long b, long c = 0, long d = 0, long e = 0,
                            long f = 0) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result = number;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) {
        errno = static_cast<int>(-result);
        return -1;
    }
    return result;
}

#else

inline long raw_system_call(long number, long a, long b, long c = 0, long d = 0, long e = 0,
                            long f = 0) {
    return syscall(number, a, b, c, d, e, f);
}

#endif

}  // namespace simcuda
