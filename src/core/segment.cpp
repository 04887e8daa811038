// SPDX-License-Identifier: BSD-3-Clause
#include "core/segment.hpp"

#include "core/host_regions.hpp"
#include "core/log.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace gpushm {
namespace {

unsigned char *map_shared(int fd, size_t length) {
    void *address = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        return nullptr;
    }
    // A child that writes here would corrupt the queues: it has no business in its parent's segments.
    madvise(address, length, MADV_DONTFORK);
    return static_cast<unsigned char *>(address);
}

}  // namespace

Segment::Segment(UniqueFd fd, unsigned char *data, size_t length)
    : fd_(std::move(fd)), data_(data), length_(length) {
    HostRegions::instance().add(data_, length_);
}

Segment::Segment(Segment &&other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)),
      length_(std::exchange(other.length_, 0)) {}

Segment &Segment::operator=(Segment &&other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(data_, other.data_);
    std::swap(length_, other.length_);
    return *this;
}

Segment::~Segment() {
    if (data_ != nullptr) {
        HostRegions::instance().remove(data_);
        munmap(data_, length_);
    }
}

std::optional<Segment> Segment::create(const char *name, size_t length) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    length = (length + page - 1) / page * page;
    UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) {
        GPUSHM_LOG(warn, "cannot create shared memory (memfd_create: %s): raise the limit of open "
                   "files (ulimit -n)", strerror(errno));
        return std::nullopt;
    }
    const int error = posix_fallocate(fd.get(), 0, static_cast<off_t>(length));
    if (error != 0) {
        GPUSHM_LOG(warn, "cannot reserve %zu bytes of shared memory (%s): give the job more memory "
                   "or make UCX_GPUSHM_RING_SIZE smaller", length, strerror(error));
        return std::nullopt;
    }
    if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        GPUSHM_LOG(warn, "cannot seal shared memory (%s)", strerror(errno));
        return std::nullopt;
    }
    unsigned char *data = map_shared(fd.get(), length);
    if (data == nullptr) {
        GPUSHM_LOG(warn, "cannot map %zu bytes of shared memory (%s): raise the limit of address "
                   "space (ulimit -v)", length, strerror(errno));
        return std::nullopt;
    }
    return Segment(std::move(fd), data, length);
}

std::optional<Segment> Segment::attach(pid_t pid, int fd, size_t minimum_length,
                                       const char **why) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", static_cast<int>(pid), fd);
    UniqueFd file(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!file) {
        *why = errno == ENOENT ? "it is gone, or in another PID namespace"
             : errno == EMFILE ? "this process has too many open files: raise ulimit -n"
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
