// SPDX-License-Identifier: BSD-3-Clause
// To be loaded before a program: the code of libmpi cannot be changed there, as if its functions
// began in a way that nobody knows to move.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

extern "C" __attribute__((visibility("default"))) int mprotect(void *address, size_t length,
                                                               int access) noexcept {
    constexpr int kBoth = PROT_WRITE | PROT_EXEC;
    Dl_info library;
    if ((access & kBoth) == kBoth && dladdr(address, &library) != 0 &&
        std::strstr(library.dli_fname, "/libmpi.so") != nullptr) {
        errno = EACCES;
        return -1;
    }
    return static_cast<int>(syscall(SYS_mprotect, address, length, access));
}
