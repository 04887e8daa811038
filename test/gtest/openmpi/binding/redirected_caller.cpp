// SPDX-License-Identifier: BSD-3-Clause
// A library that calls a function of libc, for redirection_test.cpp; built with its table of
// addresses bound lazily and, as hardened distributions do, read-only.
#include <unistd.h>

extern "C" __attribute__((visibility("default"))) int ask_for_parent() {
    return getppid();
}

extern "C" __attribute__((visibility("default"))) int (*address_of_getppid())() {
    int (*volatile function)() = getppid;  // by the table of data, not of calls
    return function;
}

namespace {

struct Named {
    const char *name;
    int (*function)();
};
Named changeable[] = {{"parent", getppid}, {"self", getpid}};
const Named constant[] = {{"parent", getppid}, {"self", getpid}};
volatile int parent = 0;  // so that the compiler has to look into the tables

}  // namespace

extern "C" __attribute__((visibility("default"))) int call_by_table() {
    return changeable[parent].function();
}

extern "C" __attribute__((visibility("default"))) int call_by_constant_table() {
    return constant[parent].function();
}

extern "C" __attribute__((visibility("default"))) void set_table(int (*function)()) {
    changeable[parent].function = function;
}
