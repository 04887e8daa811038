// SPDX-License-Identifier: BSD-3-Clause
#include "core/base/spare_descriptor.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <mutex>
#include <new>

namespace gpushm {
namespace {

/** Never destroyed. A forked child has not the thread that may have had it. */
std::mutex *const mutex = [] {
    static auto *made = new std::mutex;
    pthread_atfork(nullptr, nullptr, [] { new (made) std::mutex; });
    return made;
}();

UniqueFd &spare() {
    static auto &descriptor = *new UniqueFd;
    return descriptor;
}

}  // namespace

void keep_spare_descriptor() {
    const std::lock_guard<std::mutex> lock(*mutex);
    if (!spare()) {
        spare() = UniqueFd(eventfd(0, EFD_CLOEXEC));
    }
}

UniqueFd open_with_spare_descriptor(const char *path, int flags) {
    const std::lock_guard<std::mutex> lock(*mutex);
    UniqueFd file(open(path, flags));
    if (!file && errno == EMFILE) {
        { const UniqueFd given_up = std::move(spare()); }
        file = UniqueFd(open(path, flags));
    }
    return file;
}

}  // namespace gpushm
