// SPDX-License-Identifier: BSD-3-Clause
// ProcessWatch, node_identity, Cookie; and what forked children find.
#include "core/base/process.hpp"

#include "core/base/spare_descriptor.hpp"
#include "core/mapping/ipc_mapping_cache.hpp"
#include "core/memory/registration_table.hpp"
#include "core/shm/wake_socket.hpp"

#include "test/gtest/core/support.hpp"
#include "test/gtest/core/wrapped_calls.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <set>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace gpushm {
namespace {

using test::Channel;
using test::Child;
using test::children_that_end_well;
using test::HeapCallsOfChildren;

int wait_for_end(const Channel &channel) {
    int nothing;
    channel.receive(&nothing);
    return 0;
}

TEST(ProcessWatch, SeesDeathAlsoOfAZombie) {
    Child child(wait_for_end);
    const ProcessWatch watch(child.pid());
    EXPECT_TRUE(watch.alive());
    child.kill_hard();
    EXPECT_FALSE(watch.alive()) << "a zombie is dead";
    EXPECT_FALSE(ProcessWatch(child.pid()).alive()) << "a watch that begins at a zombie";
    child.reap();
    EXPECT_FALSE(watch.alive());
    EXPECT_FALSE(ProcessWatch(child.pid()).alive());
}

TEST(ProcessWatch, SeesThisProcess) {
    EXPECT_TRUE(ProcessWatch(getpid()).alive());
}

TEST(ProcessWatch, AllOfOneProcessShareADescriptor) {
    Child child(wait_for_end);
    const size_t before = test::open_descriptors();
    {
        const ProcessWatch first(child.pid());
        const ProcessWatch second(child.pid());
        EXPECT_LE(test::open_descriptors(), before + 1);
        EXPECT_TRUE(first.alive() && second.alive());
        child.kill_hard();
        EXPECT_FALSE(first.alive() || second.alive());
    }
    EXPECT_EQ(test::open_descriptors(), before);
}

/** A daemon has peers without end. */
TEST(ProcessWatch, NothingIsKeptOfProcessesThatAreGone) {
    const auto watch_one = [] {
        Child child(wait_for_end);
        EXPECT_TRUE(ProcessWatch(child.pid()).alive());
    };
    watch_one();
    const size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 100; ++i) {
        watch_one();
    }
    EXPECT_LT(mallinfo2().uordblks, before + 1000);
}

TEST(ProcessWatch, NumbersThatNameNoProcessAreDead) {
    // kill(2) takes 0 and negative numbers for groups of processes.
    EXPECT_FALSE(ProcessWatch(0).alive());
    EXPECT_FALSE(ProcessWatch(-1).alive());
    EXPECT_FALSE(ProcessWatch(-getpgrp()).alive());
    EXPECT_FALSE(ProcessWatch(INT32_MAX).alive());
    EXPECT_FALSE(ProcessWatch(INT32_MIN).alive());
}

TEST(ProcessWatch, WorksWithoutDescriptors) {
    Child target(wait_for_end);
    const pid_t pid = target.pid();
    Child child([&](const Channel &channel) {
        const rlimit limit = {0, 0};
        setrlimit(RLIMIT_NOFILE, &limit);
        if (!ProcessWatch(pid).alive()) {
            return 1;
        }
        channel.send(1);
        int reaped;
        channel.receive(&reaped);
        return ProcessWatch(pid).alive() ? 2 : 0;
    });
    int alive;
    ASSERT_TRUE(child.channel().receive(&alive));
    target.kill_hard();
    target.reap();
    child.channel().send(1);
    EXPECT_EQ(child.reap(), 0);
}

TEST(ProcessWatch, SeesAZombieAsSoonAsThereIsADescriptor) {
    Child target(wait_for_end);
    const pid_t pid = target.pid();
    Child child([&](const Channel &channel) {
        rlimit limit;
        getrlimit(RLIMIT_NOFILE, &limit);
        const rlimit none = {0, limit.rlim_max};
        setrlimit(RLIMIT_NOFILE, &none);
        const ProcessWatch watch(pid);
        if (!watch.alive()) {
            return 1;
        }
        setrlimit(RLIMIT_NOFILE, &limit);
        channel.send(1);
        int killed;
        channel.receive(&killed);
        return watch.alive() ? 2 : 0;
    });
    int ready;
    ASSERT_TRUE(child.channel().receive(&ready));
    target.kill_hard();  // and stays a zombie
    child.channel().send(1);
    EXPECT_EQ(child.reap(), 0);
}

TEST(NodeIdentity, IsTheSameInEveryProcessOfTheNamespaces) {
    Child child([](const Channel &channel) {
        channel.send(node_identity());
        return 0;
    });
    uint64_t identity = 0;
    ASSERT_TRUE(child.channel().receive(&identity));
    EXPECT_EQ(identity, node_identity());
}

/** node_identity() of a process that was forked after unshare(2); 0 where this user may not. */
uint64_t identity_in_new_namespace(int which) {
    Child child([which](const Channel &channel) {
        if (unshare(which) != 0) {
            channel.send(uint64_t{0});
            return 0;
        }
        // A new PID namespace is that of the children only.
        const pid_t inner = fork();
        if (inner == 0) {
            channel.send(node_identity());
            _exit(0);
        }
        waitpid(inner, nullptr, 0);
        return 0;
    });
    uint64_t identity = 0;
    EXPECT_TRUE(child.channel().receive(&identity));
    return identity;
}

TEST(NodeIdentity, DiffersInAnotherPidNamespace) {
    const uint64_t identity = identity_in_new_namespace(CLONE_NEWPID);
    if (identity == 0) {
        GTEST_SKIP() << "this user may not make a PID namespace";
    }
    EXPECT_NE(identity, node_identity());
}

TEST(NodeIdentity, DiffersInAnotherNetworkNamespace) {
    const uint64_t identity = identity_in_new_namespace(CLONE_NEWNET);
    if (identity == 0) {
        GTEST_SKIP() << "this user may not make a network namespace";
    }
    EXPECT_NE(identity, node_identity());
}

TEST(NodeIdentity, IsTheSameInOtherNamespaces) {
    // Neither mounts nor names decide: memory travels by descriptors of /proc/PID.
    const uint64_t identity = identity_in_new_namespace(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC);
    if (identity == 0) {
        GTEST_SKIP() << "this user may not make namespaces";
    }
    EXPECT_EQ(identity, node_identity());
}

TEST(Cookie, IsNeverTheSameAlsoInForkedProcesses) {
    std::set<std::pair<uint64_t, uint64_t>> cookies;
    const auto add = [&](const Cookie &cookie) {
        EXPECT_TRUE(cookies.insert({cookie.low, cookie.high}).second);
    };
    for (int i = 0; i < 1000; ++i) {
        add(Cookie::random());
    }
    for (int i = 0; i < 2; ++i) {
        Child child([](const Channel &channel) {
            channel.send(Cookie::random());
            return 0;
        });
        Cookie cookie;
        ASSERT_TRUE(child.channel().receive(&cookie));
        add(cookie);
    }
}

TEST(Cookie, IsEqualOnlyIfAllBitsAre) {
    const Cookie cookie = Cookie::random();
    Cookie other = cookie;
    EXPECT_TRUE(cookie == other);
    other.low ^= 1;
    EXPECT_FALSE(cookie == other);
    other = cookie;
    other.high ^= 1ull << 63;
    EXPECT_FALSE(cookie == other);
}

// ---------------------------------------------------------------- forked children

/** Something that takes a mutex of the process. */
struct Work {
    const char *name;
    void (*run)();
};

class ForkedChild : public testing::TestWithParam<Work> {};

/** They are forked while another thread of the parent works, and most often holds the mutex. */
TEST_P(ForkedChild, WaitsForNoThreadOfItsParent) {
    std::atomic<bool> stop{false};
    std::thread other([&] {
        while (!stop) {
            GetParam().run();
        }
    });
    constexpr int kChildren = 300;
    const int ended_well = children_that_end_well(kChildren, [] {
        GetParam().run();
        return 0;
    });
    stop = true;
    other.join();
    EXPECT_EQ(ended_well, kChildren);
}

INSTANTIATE_TEST_SUITE_P(
    Mutexes, ForkedChild,
    testing::Values(Work{"ProcessWatch", [] { (void)ProcessWatch(getppid()).alive(); }},
                    Work{"RegistrationTable",
                         [] {
                             RegistrationTable &table = RegistrationTable::instance();
                             table.remove(table.add("", 1));
                         }},
                    Work{"WakeSocket", [] { (void)can_wake(); }},
                    Work{"SpareDescriptor",
                         [] { (void)open_with_spare_descriptor("/dev/null", O_RDONLY); }},
                    Work{"IpcMappingCache", [] { IpcMappingCache::instance().forget_process(1); }}),
    [](const auto &work) { return std::string(work.param.name); });

/** Another thread may have had the heap's mutex, and not every heap is one that a child may use at
 * once: those of sanitizers and of some allocators that replace the C library's are not. */
TEST(InAForkedChild, NothingIsMadeAnewWithMemoryOfTheHeap) {
    const auto list = std::make_unique<RegistrationList>();
    RegistrationTable::instance().publish(list.get());
    int status = -1;
    {
        const HeapCallsOfChildren heap;
        Child child([&](const Channel &) { return static_cast<int>(heap.count()); });
        status = child.reap();
    }
    RegistrationTable::instance().cancel(list.get());
    EXPECT_EQ(status, 0);
}

TEST(RegistrationTableInAForkedChild, HoldsWhatTheParentHasAdded) {
    RegistrationTable &table = RegistrationTable::instance();
    const char byte = 0;
    const uint64_t inherited = table.add(&byte, 1);
    Child child([&](const Channel &) {
        return table.covers(inherited, reinterpret_cast<uint64_t>(&byte), 1) &&
                       table.add(&byte, 1) > inherited
                   ? 0
                   : 1;
    });
    EXPECT_EQ(child.reap(), 0);
    table.remove(inherited);
}

}  // namespace
}  // namespace gpushm
