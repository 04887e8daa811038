// SPDX-License-Identifier: BSD-3-Clause
// Segment: what it promises to both processes, and what it refuses.
#include "core/shm/segment.hpp"

#include "test/gtest/core/support.hpp"
#include "test/gtest/core/wrapped_calls.hpp"

#include <gtest/gtest.h>

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>

namespace gpushm {
namespace {

using test::Channel;
using test::Child;
using test::LogCapture;

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

/** A name that no other segment on this machine has. */
std::string unique_name(const char *what) {
    return std::string("gpushm-test-") + what + "-" + std::to_string(getpid());
}

/** Descriptors of all processes, and files in /dev/shm, with `name` in their name. */
size_t traces_of(const std::string &name) {
    size_t count = 0;
    const auto scan = [&](const std::string &folder, bool links) {
        DIR *directory = opendir(folder.c_str());
        if (directory == nullptr) {
            return;
        }
        while (dirent *entry = readdir(directory)) {
            char target[256] = {};
            if (links && readlink((folder + "/" + entry->d_name).c_str(), target, 255) < 0) {
                continue;
            }
            count += std::string(links ? target : entry->d_name).find(name) != std::string::npos;
        }
        closedir(directory);
    };
    DIR *processes = opendir("/proc");
    while (dirent *entry = readdir(processes)) {
        if (isdigit(static_cast<unsigned char>(entry->d_name[0]))) {
            scan(std::string("/proc/") + entry->d_name + "/fd", true);
        }
    }
    closedir(processes);
    scan("/dev/shm", false);
    return count;
}

/** Attach is refused with a reason and leaves nothing behind. */
void expect_refused(pid_t pid, int fd, size_t length, const char *reason) {
    const size_t descriptors = test::open_descriptors();
    const char *why = nullptr;
    EXPECT_FALSE(Segment::attach(pid, fd, length, &why)) << reason;
    ASSERT_NE(why, nullptr) << reason;
    EXPECT_NE(std::string(why).find(reason), std::string::npos) << why;
    EXPECT_EQ(test::open_descriptors(), descriptors) << reason;
}

UniqueFd sealed_file(size_t length, int seals) {
    UniqueFd fd(memfd_create("gpushm-test-sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(length)), 0);
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
}

TEST(Segment, IsZeroedAlignedAndRoundedUpToPages) {
    const auto segment = Segment::create("gpushm-test", kPage + 1);
    ASSERT_TRUE(segment);
    EXPECT_EQ(segment->length(), 2 * kPage);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(segment->data()) % kPage, 0u);
    EXPECT_TRUE(std::all_of(segment->data(), segment->data() + segment->length(),
                            [](unsigned char byte) { return byte == 0; }));
}

TEST(Segment, PagesAreWishedForOnTheNodeThatIsNamed) {
    if (access("/proc/self/numa_maps", R_OK) != 0) {
        GTEST_SKIP() << "this kernel does not show NUMA policies";
    }
    const size_t before = test::mappings_named("prefer", "numa_maps");
    const auto wherever = Segment::create("gpushm-test", kPage);
    const auto beyond_all = Segment::create("gpushm-test", kPage, 100000);
    ASSERT_TRUE(wherever && beyond_all);
    EXPECT_EQ(test::mappings_named("prefer", "numa_maps"), before);
    const auto on_node_0 = Segment::create("gpushm-test", kPage, 0);
    ASSERT_TRUE(on_node_0);
    EXPECT_EQ(test::mappings_named("prefer:0 file=/memfd:gpushm-test", "numa_maps"), before + 1);
}

TEST(Segment, AllPagesAreReservedAtCreation) {
    const auto segment = Segment::create("gpushm-test", 64 * kPage);
    ASSERT_TRUE(segment);
    struct stat status;
    ASSERT_EQ(fstat(segment->fd(), &status), 0);
    EXPECT_GE(static_cast<size_t>(status.st_blocks) * 512, 64 * kPage);
}

TEST(Segment, NobodyCanShrinkIt) {
    const auto segment = Segment::create("gpushm-test", 4 * kPage);
    ASSERT_TRUE(segment);
    const std::string path = "/proc/self/fd/" + std::to_string(segment->fd());
    EXPECT_EQ(truncate(path.c_str(), 0), -1);
    EXPECT_EQ(errno, EPERM);
    UniqueFd other(open(path.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_TRUE(other);
    EXPECT_EQ(ftruncate(other.get(), static_cast<off_t>(kPage)), -1);
    EXPECT_EQ(ftruncate(other.get(), static_cast<off_t>(8 * kPage)), -1);
    EXPECT_EQ(fcntl(other.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1) << "seals are not final";
    UniqueFd emptied(open(path.c_str(), O_RDWR | O_TRUNC | O_CLOEXEC));
    EXPECT_FALSE(emptied);
    segment->data()[4 * kPage - 1] = 1;  // no SIGBUS
}

/** As containers do it: the call fails with EPERM. */
bool refuse_memfd_create() {
    sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog filter = {sizeof(rules) / sizeof(rules[0]), rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(Segment, WhatIsSaidOfARefusalIsTrue) {
    Child refused([](const Channel &) {
        const LogCapture log;
        if (!refuse_memfd_create()) {
            return 77;
        }
        return !Segment::create("gpushm-test", kPage) && log.count("seccomp") == 1 &&
                       log.count("open files") == 0
                   ? 0
                   : 1;
    });
    const int status = refused.reap();
    if (status == 77) {
        GTEST_SKIP() << "no filters on system calls here";
    }
    EXPECT_EQ(status, 0);
    const LogCapture log;
    const test::FailingCall failing(0);
    EXPECT_FALSE(Segment::create("gpushm-test", kPage));
    EXPECT_EQ(log.count("open files"), 1u);
}

TEST(Segment, AttachSeesTheSameBytesInBothDirections) {
    const auto segment = Segment::create("gpushm-test", 3 * kPage);
    ASSERT_TRUE(segment);
    const pid_t owner = getpid();
    const int fd = segment->fd();
    test::fill_pattern(segment->data(), 2 * kPage, 7);
    Child child([&](const Channel &) {
        const char *why = nullptr;
        const auto attached = Segment::attach(owner, fd, 3 * kPage, &why);
        if (!attached || attached->length() != 3 * kPage || attached->fd() != -1 ||
            test::pattern_mismatch(attached->data(), 2 * kPage, 7) != 2 * kPage) {
            return 1;
        }
        test::fill_pattern(attached->data() + 2 * kPage, kPage, 8);
        return 0;
    });
    EXPECT_EQ(child.reap(), 0);
    EXPECT_EQ(test::pattern_mismatch(segment->data() + 2 * kPage, kPage, 8), kPage);
}

TEST(Segment, MovingKeepsTheMapping) {
    auto first = Segment::create("gpushm-test-first", kPage);
    auto second = Segment::create("gpushm-test-second", 2 * kPage);
    ASSERT_TRUE(first && second);
    first->data()[0] = 1;
    second->data()[0] = 2;
    Segment moved(std::move(*first));
    moved = std::move(*second);
    EXPECT_EQ(moved.data()[0], 2);
    EXPECT_EQ(moved.length(), 2 * kPage);
    first.reset();
    second.reset();
    EXPECT_EQ(moved.data()[2 * kPage - 1], 0);
}

TEST(SegmentAttach, RefusesWhatIsNotASealedSegment) {
    const pid_t self = getpid();
    const UniqueFd unsealed(memfd_create("gpushm-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(unsealed.get(), static_cast<off_t>(kPage)), 0);
    expect_refused(self, unsealed.get(), kPage, "not a sealed segment");

    const UniqueFd growing_only = sealed_file(kPage, F_SEAL_GROW);
    expect_refused(self, growing_only.get(), kPage, "not a sealed segment");

    char name[] = "gpushm-test-XXXXXX";
    const UniqueFd file(mkostemp(name, O_CLOEXEC));
    ASSERT_TRUE(file);
    ASSERT_EQ(ftruncate(file.get(), static_cast<off_t>(kPage)), 0);
    expect_refused(self, file.get(), kPage, "not a sealed segment");
    unlink(name);

    int pipe_fds[2];
    ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
    expect_refused(self, pipe_fds[0], 0, "not a sealed segment");
    close(pipe_fds[0]);
    close(pipe_fds[1]);

    const UniqueFd socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    expect_refused(self, socket_fd.get(), 0, "");
    const UniqueFd directory(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    expect_refused(self, directory.get(), 0, "");
}

TEST(SegmentAttach, RefusesShortAndUnwritableSegments) {
    const auto segment = Segment::create("gpushm-test", 2 * kPage);
    ASSERT_TRUE(segment);
    const char *why = nullptr;
    EXPECT_TRUE(Segment::attach(getpid(), segment->fd(), 2 * kPage, &why));
    expect_refused(getpid(), segment->fd(), 2 * kPage + 1, "too short");
    expect_refused(getpid(), segment->fd(), SIZE_MAX, "too short");
    const UniqueFd empty = sealed_file(0, F_SEAL_SHRINK);
    expect_refused(getpid(), empty.get(), 1, "too short");
    const UniqueFd constant = sealed_file(kPage, F_SEAL_SHRINK | F_SEAL_WRITE);
    expect_refused(getpid(), constant.get(), kPage, "cannot be mapped");
}

TEST(SegmentAttach, RefusesWhatHasVanished) {
    test::open_descriptors();  // what the first call opens does not get the number of the file that
                               // is gone
    int fd;
    {
        const auto segment = Segment::create("gpushm-test", kPage);
        ASSERT_TRUE(segment);
        fd = segment->fd();
    }
    expect_refused(getpid(), fd, 1, "it is gone");
    expect_refused(getpid(), -1, 1, "it is gone");
    expect_refused(-1, 0, 1, "it is gone");
    expect_refused(0, 0, 1, "it is gone");

    Child child([](const Channel &channel) {
        const auto segment = Segment::create("gpushm-test", kPage);
        channel.send(segment->fd());
        int forever;
        channel.receive(&forever);
        return 0;
    });
    ASSERT_TRUE(child.channel().receive(&fd));
    const char *why = nullptr;
    EXPECT_TRUE(Segment::attach(child.pid(), fd, kPage, &why));
    child.kill_hard();
    // A zombie holds no descriptor, but /proc shows its folder still.
    EXPECT_FALSE(Segment::attach(child.pid(), fd, kPage, &why));
    child.reap();
    expect_refused(child.pid(), fd, kPage, "it is gone");
}

TEST(SegmentAttach, RefusesTheSegmentOfAnotherUser) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root can become another user";
    }
    Child child([](const Channel &channel) {
        if (setuid(65534) != 0) {
            return 1;
        }
        const auto segment = Segment::create("gpushm-test", kPage);
        channel.send(segment->fd());
        int forever;
        channel.receive(&forever);
        return 0;
    });
    int fd;
    ASSERT_TRUE(child.channel().receive(&fd));
    expect_refused(child.pid(), fd, kPage, "another user");
}

TEST(SegmentAttach, RootsSegmentIsClosedToOthers) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root can become another user";
    }
    const auto segment = Segment::create("gpushm-test", kPage);
    ASSERT_TRUE(segment);
    const pid_t owner = getpid();
    const int fd = segment->fd();
    Child child([&](const Channel &) {
        const char *why = nullptr;
        return setuid(65534) == 0 && !Segment::attach(owner, fd, kPage, &why) &&
                       strstr(why, "same user") != nullptr
                   ? 0
                   : 1;
    });
    EXPECT_EQ(child.reap(), 0);
}

TEST(SegmentLife, IsGoneWithItsLastProcessAfterKill) {
    const std::string name = unique_name("life");
    Child child([&](const Channel &channel) {
        const auto segment = Segment::create(name.c_str(), 4 * kPage);
        test::fill_pattern(segment->data(), segment->length(), 3);
        channel.send(segment->fd());
        int forever;
        channel.receive(&forever);
        return 0;
    });
    int fd;
    ASSERT_TRUE(child.channel().receive(&fd));
    const char *why = nullptr;
    auto attached = Segment::attach(child.pid(), fd, 4 * kPage, &why);
    ASSERT_TRUE(attached) << why;
    EXPECT_EQ(traces_of(name), 1u) << "the creator's descriptor is the only one";
    child.kill_hard();
    EXPECT_EQ(test::pattern_mismatch(attached->data(), 4 * kPage, 3), 4 * kPage);
    EXPECT_EQ(traces_of(name), 0u);
    EXPECT_EQ(test::mappings_named(name), 1u);
    attached.reset();
    EXPECT_EQ(test::mappings_named(name), 0u);
}

TEST(SegmentMemory, MoreThanTheMachineHasIsAnErrorWithOneLine) {
    Child child([](const Channel &) {
        // Should it be tried all the same: this process is the one to be killed.
        std::ofstream("/proc/self/oom_score_adj") << 1000 << std::flush;
        struct sysinfo info;
        sysinfo(&info);
        const size_t all = (info.totalram + info.totalswap) * info.mem_unit;
        for (const size_t length : {SIZE_MAX, SIZE_MAX - kPage, size_t{1} << 62, all + kPage}) {
            LogCapture log;
            if (Segment::create("gpushm-test", length) ||
                log.count("cannot reserve " + std::to_string(length) + " bytes") != 1) {
                return 1;
            }
        }
        return 0;
    });
    EXPECT_EQ(child.reap(), 0);
}

TEST(SegmentMemory, BeyondTheFileSizeLimitIsAnErrorAndNoSignal) {
    Child child([](const Channel &) {
        const rlimit limit = {2 * kPage, 2 * kPage};
        setrlimit(RLIMIT_FSIZE, &limit);
        LogCapture log;
        return Segment::create("gpushm-test", 2 * kPage) &&
                       !Segment::create("gpushm-test", 2 * kPage + 1) &&
                       log.count("cannot reserve") == 1
                   ? 0
                   : 1;
    });
    EXPECT_EQ(child.reap(), 0);
}

TEST(SegmentMemory, SignalsDoNotKeepItFromBeingReserved) {
    constexpr size_t kLength = (8 << 20) + 3 * 4096;
    const test::InterruptedReservations signals(1 << 20);
    const LogCapture log;
    const auto segment = Segment::create("gpushm-test", kLength);
    ASSERT_TRUE(segment);
    struct stat status = {};
    ASSERT_EQ(fstat(segment->fd(), &status), 0);
    EXPECT_GE(static_cast<size_t>(status.st_blocks) * 512, kLength) << "all of it, the end too";
    EXPECT_EQ(log.count(""), 0u);
}

TEST(SegmentMemory, NoAddressSpaceIsAnError) {
    const auto segment = Segment::create("gpushm-test", kPage);
    ASSERT_TRUE(segment);
    const size_t descriptors = test::open_descriptors();
    {
        const test::NoMappings no_mappings;
        LogCapture log;
        EXPECT_FALSE(Segment::create("gpushm-test", kPage));
        EXPECT_EQ(log.count("ulimit -v"), 1u);
        const char *why = nullptr;
        EXPECT_FALSE(Segment::attach(getpid(), segment->fd(), kPage, &why));
        EXPECT_NE(std::string(why).find("ulimit -v"), std::string::npos);
    }
    EXPECT_EQ(test::open_descriptors(), descriptors);
}

TEST(SegmentMemory, NoDescriptorsIsAnError) {
    const auto segment = Segment::create("gpushm-test", kPage);
    ASSERT_TRUE(segment);
    const int fd = segment->fd();
    const pid_t owner = getpid();
    Child child([&](const Channel &) {
        const rlimit limit = {0, 0};
        setrlimit(RLIMIT_NOFILE, &limit);
        LogCapture log;
        const char *why = nullptr;
        return !Segment::create("gpushm-test", kPage) && log.count("ulimit -n") == 1 &&
                       !Segment::attach(owner, fd, kPage, &why) &&
                       strstr(why, "ulimit -n") != nullptr
                   ? 0
                   : 1;
    });
    EXPECT_EQ(child.reap(), 0);
}

TEST(SegmentFork, ChildHasNoMappingAndDoesNotTouchWhatItMapsThere) {
    const std::string name = unique_name("fork");
    auto segment = Segment::create(name.c_str(), 2 * kPage);
    ASSERT_TRUE(segment);
    segment->data()[0] = 42;
    Child child([&](const Channel &) {
        if (test::mappings_named(name) != 0) {
            return 1;
        }
        // The child's own memory at the same address, as any later mmap may get it.
        void *mine = mmap(segment->data(), 2 * kPage, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        static_cast<unsigned char *>(mine)[0] = 1;
        segment.reset();
        unsigned char resident[2];
        return mincore(mine, 2 * kPage, resident) == 0 ? 0 : 2;
    });
    EXPECT_EQ(child.reap(), 0);
    EXPECT_EQ(segment->data()[0], 42);
}

}  // namespace
}  // namespace gpushm
