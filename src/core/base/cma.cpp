// SPDX-License-Identifier: BSD-3-Clause
#include "core/base/cma.hpp"

#include "core/base/addresses.hpp"

#include <sys/uio.h>

namespace gpushm {
namespace {

using Function = ssize_t (*)(pid_t, const iovec *, unsigned long, const iovec *, unsigned long,
                             unsigned long);

bool copy(Function function, pid_t pid, void *local, uint64_t remote, size_t length) {
    while (length != 0) {
        const iovec mine = {local, length};
        const iovec theirs = {to_pointer(remote), length};
        const ssize_t copied = function(pid, &mine, 1, &theirs, 1, 0);
        if (copied <= 0) {
            return false;
        }
        local = static_cast<unsigned char *>(local) + copied;
        remote += static_cast<uint64_t>(copied);
        length -= static_cast<size_t>(copied);
    }
    return true;
}

}  // namespace

bool read_memory(pid_t pid, void *local, uint64_t remote, size_t length) {
    return copy(process_vm_readv, pid, local, remote, length);
}

bool write_memory(pid_t pid, const void *local, uint64_t remote, size_t length) {
    return copy(process_vm_writev, pid, const_cast<void *>(local), remote, length);
}

}  // namespace gpushm
