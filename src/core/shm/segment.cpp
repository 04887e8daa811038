// SPDX-License-Identifier: BSD-3-Clause
#include "core/shm/segment.hpp"

#include "core/base/available_memory.hpp"
#include "core/base/log.hpp"
#include "core/base/spare_descriptor.hpp"
#include "core/pinning/segment_table.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace gpushm {
namespace {

/** Sets the length of a file; 0 or the error. Refuses lengths that Linux would answer not by an
 * error but by a signal: a file beyond RLIMIT_FSIZE (SIGXFSZ, setrlimit(2)), and more memory than
 * there is (the OOM killer, which may choose any process of the node when the pages are
 * reserved). */
int set_length(int fd, size_t length) {
    rlimit file_size = {};
    if (getrlimit(RLIMIT_FSIZE, &file_size) == 0 && length > file_size.rlim_cur) {
        return EFBIG;
    }
    if (length > available_memory() / 2) {
        return ENOMEM;
    }
    return ftruncate(fd, static_cast<off_t>(length)) == 0 ? 0 : errno;
}

/** Reserves all pages of a file; 0 or the error. It goes in pieces, each of which is repeated while
 * a signal interrupts it (EINTR): where Linux takes back what an interrupted call has reserved, a
 * timer that is faster than one call for everything would keep that call from ever ending. */
int reserve_pages(int fd, size_t length) {
    constexpr size_t kPiece = 256 << 10;  // some 50 us
    for (size_t offset = 0; offset < length;) {
        const size_t piece = std::min(kPiece, length - offset);
        const int error =
            posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(piece));
        if (error == 0) {
            offset += piece;
        } else if (error != EINTR) {
            return error;
        }
    }
    return 0;
}

void log_no_memory(size_t wanted, int error) {
    GPUSHM_LOG(warn,
               "cannot reserve %zu bytes of shared memory (%s): give the job more memory (or "
               "file size, ulimit -f) or make UCX_GPUSHM_RING_SIZE smaller",
               wanted, strerror(error));
}

unsigned char *map_shared(int fd, size_t length) {
    void *address = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        return nullptr;
    }
    // A child that writes here would corrupt the queues: it has no business in its parent's
    // segments.
    madvise(address, length, MADV_DONTFORK);
    return static_cast<unsigned char *>(address);
}

}  // namespace

Segment::Segment(UniqueFd fd, unsigned char *data, size_t length)
    : fd_(std::move(fd)), data_(data, {length, getpid()}) {
    SegmentTable::instance().add(data, length);
}

void Segment::Unmap::operator()(unsigned char *data) const {
    // A forked child has something else there, or nothing (MADV_DONTFORK).
    if (mapped_by == getpid()) {
        SegmentTable::instance().unmap(data, length);
    }
}

void Segment::discard() {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    // Where Linux cannot, the memory goes with the last mapping.
    if (length() > page) {
        madvise(data() + page, length() - page, MADV_REMOVE);
    }
}

/** For good: peers need not fear SIGBUS. */
std::optional<Segment> Segment::seal(Segment segment) {
    if (fcntl(segment.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        GPUSHM_LOG(
            warn,
            "cannot seal shared memory (%s), which peers require: UCX uses other transports; allow "
            "fcntl(F_ADD_SEALS) in the container's filter on system calls (seccomp)",
            strerror(errno));
        return std::nullopt;
    }
    return segment;
}

std::optional<Segment> Segment::create(const char *name, size_t wanted, int numa_node) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t length = (wanted + page - 1) / page * page;
    UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) {
        const bool too_many = errno == EMFILE || errno == ENFILE;
        GPUSHM_LOG(warn, "cannot create shared memory (memfd_create: %s): %s", strerror(errno),
                   too_many
                       ? "raise the limit of open files (ulimit -n)"
                       : "a filter on system calls (seccomp) of the container has to allow it");
        return std::nullopt;
    }
    if (const int error = wanted <= SIZE_MAX / 2 ? set_length(fd.get(), length) : ENOMEM) {
        log_no_memory(wanted, error);
        return std::nullopt;
    }
    unsigned char *data = map_shared(fd.get(), length);
    if (data == nullptr) {
        GPUSHM_LOG(warn,
                   "cannot map %zu bytes of shared memory (%s): raise the limit of address "
                   "space (ulimit -v)",
                   length, strerror(errno));
        return std::nullopt;
    }
    Segment segment(std::move(fd), data, length);
    // The policy is the file's, so that it holds for pages that are reserved without an access.
    prefer_numa_node(data, length, numa_node);
    if (const int error = reserve_pages(segment.fd(), length)) {
        log_no_memory(wanted, error);
        return std::nullopt;
    }
    return seal(std::move(segment));
}

bool Segment::peers_may_attach() {
    return prctl(PR_GET_DUMPABLE) == 1;
}

std::optional<Segment> Segment::attach(pid_t pid, int fd, size_t minimum_length, const char **why) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", static_cast<int>(pid), fd);
    struct Refill {
        ~Refill() { keep_spare_descriptor(); }
    } const refill;  // after `file` is closed
    const UniqueFd file =
        open_with_spare_descriptor(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (!file) {
        *why = errno == ENOENT ? "it is gone, or in another PID namespace"
               : errno == EMFILE
                   ? "this process has too many open files: raise ulimit -n"
                   : "/proc does not let this process open the peer's memory: run both "
                     "as the same user, in the same container";
        return std::nullopt;
    }
    struct stat status = {};
    const int seals = fcntl(file.get(), F_GET_SEALS);
    if (fstat(file.get(), &status) != 0 || status.st_uid != geteuid()) {
        *why = "its memory belongs to another user";
        return std::nullopt;
    }
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        *why = "what it names is not a sealed segment";
        return std::nullopt;
    }
    const auto length = static_cast<size_t>(status.st_size);
    if (length < minimum_length) {
        *why = "its segment is too short";
        return std::nullopt;
    }
    unsigned char *data = map_shared(file.get(), length);
    if (data == nullptr) {
        *why = "its segment cannot be mapped: raise ulimit -v";
        return std::nullopt;
    }
    return Segment(UniqueFd(), data, length);
}

}  // namespace gpushm
