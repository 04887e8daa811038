// SPDX-License-Identifier: BSD-3-Clause
// A library that calls a function of libc, for redirection_test.cpp, and that the loader takes a
// while to relocate.
#include <unistd.h>

namespace {
int nothing() {
    return 0;
}
}  // namespace

extern "C" {

/** Chooses `slow` while the library is relocated, so that it can call nothing. */
__attribute__((no_sanitize("address", "undefined"))) int (*choose_slow())() {
    for (volatile unsigned long i = 0; i < 300000000; i = i + 1) {
    }
    return nothing;
}

__attribute__((visibility("default"), ifunc("choose_slow"))) int slow();

__attribute__((visibility("default"))) int (*slow_function)() = slow;

__attribute__((visibility("default"))) int ask_for_parent() {
    return getppid();
}

}  // extern "C"
