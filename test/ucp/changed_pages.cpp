// SPDX-License-Identifier: BSD-3-Clause
// Host memory that is used often enough for messages from and to a GPU to be page-locked, and then
// has other pages.
#include "allocation.hpp"
#include "check.hpp"
#include "kernels.hpp"
#include "scenarios.hpp"
#include "session.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

namespace gpushm::ucp_test {
namespace {

constexpr size_t kBytes = size_t{3} << 20;
constexpr int kAccess = PROT_READ | PROT_WRITE;
constexpr int kTurns = 30;
constexpr int kChange = 20;  // the turn before which they do

struct Pages {
    unsigned char *address;
    int file;
};

struct Way {
    const char *name;
    int flags;  // of mmap
    bool (*change)(const Pages &pages);
};

bool truncate_and_extend(const Pages &pages) {
    return ftruncate(pages.file, 0) == 0 && ftruncate(pages.file, kBytes) == 0;
}

constexpr Way kWays[] = {
    {"a file in a shared mapping", MAP_SHARED, truncate_and_extend},
    {"a file in a private mapping", MAP_PRIVATE, truncate_and_extend},
    {"syscall(SYS_munmap)", MAP_PRIVATE | MAP_ANONYMOUS,
     [](const Pages &pages) {
         return syscall(SYS_munmap, pages.address, kBytes) == 0 &&
                syscall(SYS_mmap, pages.address, kBytes, kAccess,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != -1;
     }},
    {"madvise", MAP_PRIVATE | MAP_ANONYMOUS,
     [](const Pages &pages) { return madvise(pages.address, kBytes, MADV_DONTNEED) == 0; }},
};

void transfer(Session &session, bool sends, void *memory) {
    const ucp_request_param_t parameters = plain_request();
    require(
        session.worker().wait(sends ? ucp_tag_send_nbx(session.ep(), memory, kBytes, 1, &parameters)
                                    : ucp_tag_recv_nbx(session.worker().get(), memory, kBytes, 1,
                                                       ~ucp_tag_t{0}, &parameters)),
        "message");
}

void expect_bytes(const std::vector<unsigned char> &found, unsigned char value, const char *way,
                  int turn) {
    for (size_t i = 0; i < found.size(); ++i) {
        if (found[i] != value) {
            fail("%s, turn %d: byte %zu is %d instead of %d", way, turn, i, found[i], value);
        }
    }
}

/** Process 0 sends from the pages, and receives there what process 1 sends from its GPU. */
void exchange_through_pages(Session &session, const Way &way) {
    const bool is_anonymous = (way.flags & MAP_ANONYMOUS) != 0;
    const int file = is_anonymous ? -1 : memfd_create("changed pages", MFD_CLOEXEC);
    if (!is_anonymous && ftruncate(file, kBytes) != 0) {
        fail("no memory for a file");
    }
    void *const mapped = mmap(nullptr, kBytes, kAccess, way.flags, file, 0);
    const Pages pages = {static_cast<unsigned char *>(mapped), file};
    for (int turn = 0; turn < kTurns; ++turn) {
        if (turn == kChange && !way.change(pages)) {
            fail("%s does not work", way.name);
        }
        std::fill_n(pages.address, kBytes, 2 * turn);
        transfer(session, true, pages.address);
        transfer(session, false, pages.address);
        expect_bytes({pages.address, pages.address + kBytes}, 2 * turn + 1, way.name, turn);
    }
    munmap(mapped, kBytes);
    close(file);
}

void exchange_through_gpu(Session &session, Allocation &memory, const Way &way) {
    std::vector<unsigned char> bytes(kBytes);
    for (int turn = 0; turn < kTurns; ++turn) {
        transfer(session, false, memory.data());
        memory.read(0, bytes.data(), kBytes);
        expect_bytes(bytes, 2 * turn, way.name, turn);
        std::fill(bytes.begin(), bytes.end(), 2 * turn + 1);
        memory.write(0, bytes.data(), kBytes);
        transfer(session, true, memory.data());
    }
}

}  // namespace

void changed_pages(Peer &peer) {
    use_device(peer.role % device_count());
    Session session(peer.channel, UCP_FEATURE_TAG);
    Allocation memory(Allocator::device, kBytes);
    for (const Way &way : kWays) {
        set_activity(std::string("pages that change: ") + way.name);
        if (peer.role == 0) {
            exchange_through_pages(session, way);
        } else {
            exchange_through_gpu(session, memory, way);
        }
    }
    peer.channel.barrier(session.worker().progress_function());
}

}  // namespace gpushm::ucp_test
