// SPDX-License-Identifier: BSD-3-Clause
// The mapping that keeps the access to a GPU, of memory that its process tells its peers of.
#include "test/gtest/core/transport/port_gpu_peer.hpp"

#include "core/reclaim/context_in_use.hpp"

#include <chrono>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 4096;

/** `here`, `there`: whose contexts are in use, and who has met GPU memory. */
int map_before_messages(bool here, bool there, CUdevice peer_device, unsigned long opened_here,
                        unsigned long opened_there) {
    Pair pair(peer_device);
    CHECK(pair.start());
    if (there) {
        pair.peer.use_gpu();
    }
    if (here) {
        use_gpu();
    }
    const auto wait = [&] {
        return progress_until({&*pair.port}, [&] {
            return calls("cuIpcOpenMemHandle") >= opened_here &&
                   pair.peer.calls("cuIpcOpenMemHandle") >= opened_there;
        });
    };
    CHECK(wait());
    settle({&*pair.port});
    CHECK(calls("cuIpcOpenMemHandle") == opened_here &&
          pair.peer.calls("cuIpcOpenMemHandle") == opened_there);
    // Messages go on as usual.
    Buffer local(MemoryKind::device, kBytes);
    const RemoteMemory remote = pair.peer.allocate(kBytes);
    for (uint64_t seed = 1; seed <= 2; ++seed) {
        pair.peer.fill(seed);
        CHECK(pair.get(local.data(), kBytes, remote) == Status::ok &&
              local.check(0, kBytes, seed, 0).empty());
    }
    CHECK(calls("cuIpcOpenMemHandle") == opened_here + 1);
    return pair.peer.finish();
}

FreshProcess both_use("both-use-gpus", [] { return map_before_messages(true, true, 1, 1, 1); });
FreshProcess one_uses("one-uses-a-gpu", [] { return map_before_messages(true, false, 1, 0, 0); });
FreshProcess other_uses("other-uses-a-gpu",
                        [] { return map_before_messages(false, true, 1, 0, 0); });

TEST(PortGpuKeptAccess, WhereBothUseGpusTheAccessIsSetUpBeforeTheFirstTransfer) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(both_use.run(), 0);
    EXPECT_EQ(one_uses.run(), 0);
    EXPECT_EQ(other_uses.run(), 0);
}

/** So long that each port has kept house. */
void keep_house(TestPort &port) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
    while (std::chrono::steady_clock::now() < end) {
        port->progress();
    }
}

FreshProcess host_messages("contexts-and-host-memory", [] {
    Pair pair(1);
    CHECK(pair.start());
    pair.peer.note_context();
    note_context_in_use(current_context());
    reset_calls();
    keep_house(*pair.port);
    pair.peer.note_context();  // a message
    keep_house(*pair.port);
    CHECK(calls("cuMemAlloc") == 0 && calls("cuIpcOpenMemHandle") == 0);
    CHECK(pair.peer.calls("cuMemAlloc") == 0 && pair.peer.calls("cuIpcOpenMemHandle") == 0);
    pair.peer.use_gpu();
    use_gpu();
    CHECK(pair.await_calls("cuIpcOpenMemHandle", 1));
    return pair.peer.finish();
});

/** The first mapping takes 12 ms between two H200. */
TEST(PortGpuKeptAccess, AProgramWhoseMessagesAreHostMemoryDoesNotPayForIt) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(host_messages.run(), 0);
}

FreshProcess no_peer("nobody-to-offer-to", [] {
    CHECK(enter_primary_context(0));
    use_gpu();
    TestPort port(kMappingPort);
    reset_calls();
    keep_house(port);
    port.connection(port);  // maps nothing of itself
    keep_house(port);
    CHECK(calls("cuMemAlloc") == 0);
    return 0;
});

TEST(PortGpuKeptAccess, NothingIsAllocatedForNobody) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(no_peer.run(), 0);
}

FreshProcess later_context("later-context-in-use", [] {
    CUcontext primary = enter_primary_context(0);
    CHECK(primary != nullptr && !context_in_use());
    CUcontext first = make_context();
    note_context_in_use(first);
    note_context_in_use(primary);
    CHECK(context_in_use()->context == first);
    destroy_context(first);
    note_context_in_use(primary);
    CHECK(context_in_use()->context == primary);
    return 0;
});

TEST(PortGpuKeptAccess, AContextThatHasEndedIsNotInUse) {
    EXPECT_EQ(later_context.run(), 0);
}

unsigned long open_mappings() {
    return calls("cuIpcOpenMemHandle") - calls("cuIpcCloseMemHandle");
}

/** Two passes of a program that frees its buffers at the end of each. Its context is seen after the
 * first mapping. */
FreshProcess passes("passes-of-a-program", [] {
    Pair pair(1);
    CHECK(pair.start());
    Buffer local(MemoryKind::device, kBytes);
    for (unsigned long pass = 1; pass <= 2; ++pass) {
        const RemoteMemory remote = pair.peer.allocate(kBytes);
        for (uint64_t seed = pass; seed <= pass + 2; ++seed) {
            pair.peer.fill(seed);
            CHECK(pair.get(local.data(), kBytes, remote) == Status::ok &&
                  local.check(0, kBytes, seed, 0).empty());
        }
        CHECK(open_mappings() == pass);
        pair.peer.use_gpu();
        use_gpu();
        CHECK(pair.await_calls("cuIpcOpenMemHandle", pass + 1));
        pair.peer.release();
        CHECK(pair.await_calls("cuIpcCloseMemHandle", pass));
        settle({&*pair.port});
        CHECK(open_mappings() == 1);
    }
    return pair.peer.finish();
});

TEST(PortGpuKeptAccess, OneMappingKeepsTheAccessToAGpu) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(passes.run(), 0);
}

FreshProcess two_peers("two-peers-of-one-gpu", [] {
    Peer first(kMappingPort, 1);
    Peer second(kMappingPort, 1);
    CHECK(enter_primary_context(0));
    TestPort port(kMappingPort);
    CHECK(first.connect(port) && second.connect(port));
    use_gpu();
    first.use_gpu();
    second.use_gpu();
    const auto await_opened = [&](unsigned long count) {
        return progress_until({&port}, [&] { return calls("cuIpcOpenMemHandle") >= count; });
    };
    CHECK(await_opened(1));
    keep_house(port);
    CHECK(calls("cuIpcOpenMemHandle") == 1);
    // Whichever kept the access, the memory of the other one does so afterwards.
    const bool keeps_first = first.calls("cuIpcGetMemHandle") == 1;
    Peer &keeper = keeps_first ? first : second;
    Peer &other = keeps_first ? second : first;
    keeper.kill();
    CHECK(await_opened(2));
    keep_house(port);
    CHECK(calls("cuIpcOpenMemHandle") == 2);
    return other.finish();
});

TEST(PortGpuKeptAccess, AnotherPeerKeepsTheAccessAfterTheFirstOneHasDied) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(two_peers.run(), 0);
}

FreshProcess refused("refused-offer", [] {
    Peer first(kMappingPort, 1);
    Peer second(kMappingPort, 1);
    CHECK(enter_primary_context(0));
    TestPort port(kMappingPort);
    CHECK(first.connect(port));
    first.simulate("SIMCUDA_FAIL", "cuIpcGetMemHandle:1:1");
    use_gpu();
    first.use_gpu();
    CHECK(progress_until({&port}, [&] { return first.calls("cuIpcGetMemHandle") == 1; }));
    keep_house(port);
    CHECK(first.calls("cuIpcGetMemHandle") == 1 && calls("cuIpcOpenMemHandle") == 0);
    CHECK(second.connect(port));
    second.use_gpu();
    CHECK(progress_until({&port}, [&] { return calls("cuIpcOpenMemHandle") == 1; }));
    return first.finish() + second.finish();
});

TEST(PortGpuKeptAccess, AnotherPeerKeepsTheAccessWhereTheFirstOneGivesNoHandle) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(refused.run(), 0);
}

}  // namespace
}  // namespace gpushm
