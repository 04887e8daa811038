// SPDX-License-Identifier: BSD-3-Clause
#include "core/base/process.hpp"

#include "core/base/fork_safe.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include <cerrno>
#include <map>
#include <mutex>

namespace gpushm {
namespace {

uint64_t mix(uint64_t hash, const void *data, size_t length) {
    // FNV-1a: no secret is made of it, it only tells nodes apart.
    const auto *bytes = static_cast<const unsigned char *>(data);
    for (size_t i = 0; i < length; ++i) {
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    }
    return hash;
}

/** Adds the identity of a namespace (namespaces(7), "device ID and inode number"). Adds nothing
 * without /proc. */
uint64_t mix_namespace(uint64_t hash, const char *path) {
    struct stat info = {};
    if (stat(path, &info) == 0) {
        hash = mix(hash, &info.st_dev, sizeof(info.st_dev));
        hash = mix(hash, &info.st_ino, sizeof(info.st_ino));
    }
    return hash;
}

bool ended(const UniqueFd &pidfd) {
    pollfd event = {pidfd.get(), POLLIN, 0};
    return poll(&event, 1, 0) > 0;
}

/** The descriptors by which this process watches others. */
struct Watched {
    static Watched &instance() { return ForkSafe<Watched>::instance(); }

    /** The descriptor of `pid` is closed: removes its entry, unless the entry belongs to a newer
     * one. */
    void forget(pid_t pid) {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto found = pidfds.find(pid);
        if (found != pidfds.end() && found->second.expired()) {
            pidfds.erase(found);
        }
    }

    std::mutex mutex;
    std::map<pid_t, std::weak_ptr<const UniqueFd>> pidfds;
};

struct OwnCookie {
    Cookie cookie = Cookie::random();
};

/** Null when no descriptor can be had. */
std::shared_ptr<const UniqueFd> open_pidfd(pid_t pid) {
    UniqueFd opened(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!opened) {
        return nullptr;
    }
    return {new UniqueFd(std::move(opened)), [pid](const UniqueFd *pidfd) {
                delete pidfd;
                Watched::instance().forget(pid);
            }};
}

/** The descriptor that this process already has open for `pid`. Null when there is none, or that
 * process has ended: another process may have its PID by now. */
std::shared_ptr<const UniqueFd> known_pidfd(pid_t pid) {
    Watched &watched = Watched::instance();
    std::shared_ptr<const UniqueFd> known;
    {
        const std::lock_guard<std::mutex> lock(watched.mutex);
        const auto found = watched.pidfds.find(pid);
        known = found != watched.pidfds.end() ? found->second.lock() : nullptr;
    }
    return known == nullptr || ended(*known) ? nullptr : known;
}

/** The descriptor by which this process watches `pid`; null when there is none. The last holder of
 * a descriptor takes the mutex when it lets go, so none is let go here while this thread has the
 * mutex. */
std::shared_ptr<const UniqueFd> pidfd_of(pid_t pid) {
    std::shared_ptr<const UniqueFd> pidfd = known_pidfd(pid);
    if (pidfd == nullptr && (pidfd = open_pidfd(pid)) != nullptr) {
        Watched &watched = Watched::instance();
        const std::lock_guard<std::mutex> lock(watched.mutex);
        watched.pidfds[pid] = pidfd;
    }
    return pidfd;
}

}  // namespace

uint64_t node_identity() {
    uint64_t hash = 0xcbf29ce484222325ull;
    char boot_id[64];
    UniqueFd file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    ssize_t length = file ? read(file.get(), boot_id, sizeof(boot_id)) : 0;
    hash = mix(hash, boot_id, length > 0 ? length : 0);
    hash = mix_namespace(hash, "/proc/self/ns/pid");
    hash = mix_namespace(hash, "/proc/self/ns/net");
    return hash;
}

Cookie Cookie::random() {
    Cookie cookie;
    if (getrandom(&cookie, sizeof(cookie), 0) != sizeof(cookie)) {
        // Only uniqueness is needed: a PID and a clock are unique on this node.
        timespec now = {};
        clock_gettime(CLOCK_MONOTONIC, &now);
        cookie.low = (static_cast<uint64_t>(getpid()) << 32) ^ static_cast<uint64_t>(now.tv_nsec);
        cookie.high = static_cast<uint64_t>(now.tv_sec);
    }
    return cookie;
}

const Cookie &process_cookie() {
    return ForkSafe<OwnCookie>::instance().cookie;
}

ProcessWatch::ProcessWatch(pid_t pid) : pid_(pid), pidfd_(pid > 0 ? pidfd_of(pid) : nullptr) {}

bool ProcessWatch::alive() const {
    if (pid_ <= 0) {
        return false;  // kill(2) would ask for a group of processes
    }
    if (pidfd_ == nullptr) {
        pidfd_ = pidfd_of(pid_);  // a descriptor may be free by now
    }
    if (pidfd_ != nullptr) {
        return !ended(*pidfd_);
    }
    return kill(pid_, 0) == 0 || errno == EPERM;
}

}  // namespace gpushm
