// SPDX-License-Identifier: BSD-3-Clause
// A library that calls a function of libc, for redirection_test.cpp; built with its table of addresses bound lazily
// and, as hardened distributions do, read-only.
#include <unistd.h>

extern "C" __attribute__((visibility("default"))) int ask_for_parent() { return getppid(); }

extern "C" __attribute__((visibility("default"))) int (*address_of_getppid())() {
    int (*volatile function)() = getppid;  // by the table of data, not of calls
    return function;
}
