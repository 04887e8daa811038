// SPDX-License-Identifier: BSD-3-Clause
#include "core/base/spare_descriptor.hpp"

#include "core/base/fork_safe.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <mutex>

namespace gpushm {
namespace {

struct SpareMutex : std::mutex {};

UniqueFd &spare() {
    static auto &descriptor = *new UniqueFd;
    return descriptor;
}

}  // namespace

void keep_spare_descriptor() {
    const std::lock_guard<std::mutex> lock(ForkSafe<SpareMutex>::instance());
    if (!spare()) {
        spare() = UniqueFd(eventfd(0, EFD_CLOEXEC));
    }
}

UniqueFd open_with_spare_descriptor(const char *path, int flags) {
    const std::lock_guard<std::mutex> lock(ForkSafe<SpareMutex>::instance());
    UniqueFd file(open(path, flags));
    if (!file && errno == EMFILE) {
        { const UniqueFd given_up = std::move(spare()); }
        file = UniqueFd(open(path, flags));
    }
    return file;
}

}  // namespace gpushm
