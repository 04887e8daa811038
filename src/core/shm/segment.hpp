// SPDX-License-Identifier: BSD-3-Clause
// Memory that processes share.
//
// A segment is an anonymous file (memfd_create(2)), not a name in /dev/shm. It needs no mounted
// /dev/shm and does not count against the size of that (64 MiB in a default container). No other
// user can open it by guessing a name. It is gone with its last process, also after kill -9. Peers
// open it as /proc/PID/fd/FD, which Linux allows to the same user only.
#pragma once

#include "core/base/unique_fd.hpp"
#include "core/memory/numa_node.hpp"

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>

namespace gpushm {

class Segment {
public:
    /** Creates a zeroed segment of at least `length` bytes and maps it. All its pages are reserved
     * now, if possible on `numa_node`, and it can never shrink (F_SEAL_SHRINK), so that no later
     * access raises SIGBUS. Empty, with a line in the log, when there is not enough memory. */
    static std::optional<Segment> create(const char *name, size_t length,
                                         int numa_node = kAnyNumaNode);

    /** Maps the segment that process `pid` holds as descriptor `fd`. Empty, with the reason in
     * `*why` (static text), when it is not a sealed segment of this user of at least
     * `minimum_length` bytes. Its content is not trusted: the caller checks it. */
    static std::optional<Segment> attach(pid_t pid, int fd, size_t minimum_length,
                                         const char **why);

    /** Whether other processes of this user may attach to the segments of this one. Linux does not
     * let them when the process is not "dumpable" (prctl(2)): it changed its user, or its program
     * file may not be read. Changes while the process runs. */
    static bool peers_may_attach();

    /** Page aligned. */
    unsigned char *data() const { return data_.get(); }
    /** Bytes, a multiple of the page size. */
    size_t length() const { return data_.get_deleter().length; }
    /** The descriptor that peers name in attach; -1 in an attached segment. */
    int fd() const { return fd_.get(); }
    /** Closes the descriptor: no peer will attach any more. */
    void close_fd() { fd_ = UniqueFd(); }
    /** Gives the memory behind the first page back to the system, for all processes that map it. It
     * reads as zeros then, and a write takes memory again. */
    void discard();

private:
    struct Unmap {
        size_t length;
        pid_t mapped_by;
        void operator()(unsigned char *data) const;
    };

    Segment(UniqueFd fd, unsigned char *data, size_t length);
    static std::optional<Segment> seal(Segment segment);

    UniqueFd fd_;
    std::unique_ptr<unsigned char, Unmap> data_;
};

}  // namespace gpushm
