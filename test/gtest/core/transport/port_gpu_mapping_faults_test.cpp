// SPDX-License-Identifier: BSD-3-Clause
// What goes wrong with mapped memory: refusals, failing copies, peers that die, sleep or close.
#include "test/gtest/core/transport/port_gpu_peer.hpp"

#include <signal.h>

#include <chrono>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 1 << 20;
constexpr uint64_t kUntilMapped = 5;

constexpr char kOwner = 0;

/** Messages with fresh bytes, each checked. */
int pull(Pair &pair, const RemoteMemory &remote, Buffer &local, uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; ++i) {
        pair.peer.fill(i);
        CHECK(pair.get(local.data(), kBytes, remote) == Status::ok);
        CHECK(local.check(0, kBytes, i, 0).empty());
    }
    return 0;
}

// ---------------------------------------------------------------- refusals

/** Nobody is asked twice, and the data comes all the same. */
int run_refused(const PortConfig &peer_config, const char *here, const char *there,
                unsigned long opened, unsigned long exported) {
    Pair pair(1, peer_config);
    CHECK(pair.start());
    const LogCapture log;
    const RemoteMemory remote = pair.peer.allocate(kBytes);
    Buffer local(MemoryKind::device, kBytes);
    set_simulation("SIMCUDA_FAIL", here);
    pair.peer.simulate("SIMCUDA_FAIL", there);
    CHECK(pull(pair, remote, local, 0, 3 * kUntilMapped) == 0);
    CHECK(calls("cuIpcOpenMemHandle") == opened);
    CHECK(await_background_calls("cuIpcCloseMemHandle", 0));
    CHECK(pair.peer.calls("cuIpcGetMemHandle") == exported);
    CHECK(pair.peer.calls("cuMemcpyAsync") >= 3 * kUntilMapped);
    return pair.peer.finish();
}

FreshProcess refused_here("refused-by-the-importers-driver", [] {
    return run_refused(kMappingPort, "cuIpcOpenMemHandle:1:1", "", 1, 1);
});
FreshProcess refused_there("refused-by-the-owners-driver", [] {
    return run_refused(kMappingPort, "", "cuIpcGetMemHandle:1:1", 0, 1);
});
FreshProcess refused_by_setting("refused-by-the-owners-setting",
                                [] { return run_refused(kSmallPort, "", "", 0, 0); });

TEST(PortGpuMappingFaults, RefusedHandleIsNotAskedForAgain) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(refused_here.run(), 0);
    EXPECT_EQ(refused_there.run(), 0);
    EXPECT_EQ(refused_by_setting.run(), 0);
}

/** The driver of each process counts its buffers for itself, so that both may have the same number.
 */
FreshProcess named_another("names-memory-of-another", [] {
    Pair honest(1);
    Pair liar(1);
    CHECK(honest.start() && liar.start());
    const LogCapture log;
    const RemoteMemory remote = honest.peer.allocate(kBytes);
    RemoteMemory forged = liar.peer.allocate(kBytes);
    CHECK(forged.buffer.buffer_id == remote.buffer.buffer_id);
    Buffer local(MemoryKind::device, kBytes);
    CHECK(pull(honest, remote, local, 0, 1) == 0);
    forged.buffer.owner = remote.buffer.owner;
    CHECK(pull(liar, forged, local, 0, kUntilMapped) == 0);
    CHECK(pull(honest, remote, local, 100, kUntilMapped) == 0);
    CHECK(log.count("names memory of another process") == 1);
    forged.buffer.owner = process_cookie().low;
    forged.registration = 1;
    CHECK(pull(liar, forged, local, 200, 1) != 0);
    return liar.peer.finish() + honest.peer.finish();
});

TEST(PortGpuMappingFaults, MemoryOfAnotherProcessIsNotThePeers) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(named_another.run(), 0);
}

// ---------------------------------------------------------------- copies that fail

/** Whether a get or put of all bytes while calls fail arrives. The peer's copies are counted. */
int move(Pair &pair, bool put, const RemoteMemory &remote, Buffer &local, const char *rule,
         uint64_t seed, Status *status) {
    pair.peer.fill(seed);
    local.fill(seed + 1);
    pair.peer.reset_calls();
    set_simulation("SIMCUDA_FAIL", rule);
    *status = put ? pair.put(local.data(), kBytes, remote) : pair.get(local.data(), kBytes, remote);
    set_simulation("SIMCUDA_FAIL", "");
    CHECK(*status != Status::ok ||
          (put ? pair.peer.holds(seed + 1) : local.check(0, kBytes, seed, 0).empty()));
    return 0;
}

/** The second cuCtxGetId is that of the copy; the first asks whether the mapping is alive. */
FreshProcess failing_copies("failing-copies", [] {
    Pair pair(1);
    CHECK(pair.start());
    const LogCapture log;
    const RemoteMemory remote = pair.peer.allocate(kBytes);
    Buffer local(MemoryKind::device, kBytes);
    CHECK(pull(pair, remote, local, 0, kUntilMapped) == 0);
    CHECK(calls("cuIpcOpenMemHandle") == 1);
    uint64_t seed = 100;
    for (const char *rule :
         {"cuMemcpyAsync:1:1,cuMemcpyAsync:1:1", "cuEventRecord:1:700,cuStreamSynchronize:1:700",
          "cuEventQuery:1:700,cuStreamSynchronize:1:700",
          "cuCtxGetId:2:709,cuCtxGetId:2:709,cuCtxGetId:2:709", "cuPointerGetAttributes:1:1"}) {
        for (const bool put : {false, true}) {
            Status status;
            CHECK(move(pair, put, remote, local, rule, seed += 2, &status) == 0);
            if (rule != std::string("cuPointerGetAttributes:1:1")) {  // then the kind is not known
                CHECK(status == Status::ok);
                CHECK(pair.peer.calls("cuMemcpyAsync") != 0);  // it has helped
            }
        }
    }
    // These do not end the copy.
    for (const char *rule : {"cuMemcpyAsync:1:1", "cuEventRecord:1:700", "cuEventQuery:1:700",
                             "cuCtxGetId:2:700", "cuCtxGetId:2:709"}) {
        for (const bool put : {false, true}) {
            Status status;
            CHECK(move(pair, put, remote, local, rule, seed += 2, &status) == 0);
            CHECK(status == Status::ok);
            CHECK(pair.peer.calls("cuMemcpyAsync") == 0);
        }
    }
    // That was not the end of the mapping.
    pair.peer.reset_calls();
    CHECK(pull(pair, remote, local, 200, 3) == 0);
    CHECK(pair.peer.calls("cuMemcpyAsync") == 0);
    CHECK(calls("cuIpcOpenMemHandle") == 1);
    CHECK(await_background_calls("cuIpcCloseMemHandle", 0));
    return pair.peer.finish();
});

TEST(PortGpuMappingFaults, FailingCopyTakesTheRing) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(failing_copies.run(), 0);
}

/** On one GPU the process with the smaller cookie writes into the memory of the one that asks. */
FreshProcess failing_push("failing-push", [] {
    Pair pair(0);
    CHECK(pair.start());
    const LogCapture log;
    const bool we_copy = pair.precedes();
    const RemoteMemory remote = pair.peer.allocate(kBytes);
    Buffer local(MemoryKind::device, kBytes);
    const Registration registration(local.data(), kBytes);
    for (uint64_t i = 0; i < 30; ++i) {
        const char *rule = i % 3 != 2 || i < 20 ? "" : "cuMemcpyAsync:1:1,cuMemcpyAsync:1:1";
        pair.peer.fill(2 * i);
        local.fill(2 * i + 1);
        if (we_copy) {
            set_simulation("SIMCUDA_FAIL", rule);
            CHECK(pair.peer.get(registration.named(), kBytes) == Status::ok);
            set_simulation("SIMCUDA_FAIL", "");
            CHECK(pair.peer.holds(2 * i + 1));
        } else {
            pair.peer.simulate("SIMCUDA_FAIL", rule);
            CHECK(pair.get(local.data(), kBytes, remote) == Status::ok);
            pair.peer.simulate("SIMCUDA_FAIL", "");
            CHECK(local.check(0, kBytes, 2 * i, 0).empty());
        }
    }
    return pair.peer.finish();
});

TEST(PortGpuMappingFaults, FailingPushTakesTheRing) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(failing_push.run(), 0);
    EXPECT_EQ(failing_push.run(), 0);
}

// ---------------------------------------------------------------- peers that go away

/** `moment`: 0 with nothing under way, 1 while the copy runs, 2 while it runs, seen before its
 * end, 3 with nothing under way and nobody asks whether it lives. */
int outlive(int moment) {
    Pair pair(1);
    CHECK(pair.start());
    const RemoteMemory remote = pair.peer.allocate(kBytes);
    Buffer local(MemoryKind::device, kBytes);
    CHECK(pull(pair, remote, local, 0, kUntilMapped) == 0);
    CHECK(calls("cuIpcOpenMemHandle") == 1);
    pair.peer.fill(500);
    Outcome outcome;
    Outcome flushed;
    const bool copying = moment == 1 || moment == 2;
    if (copying) {
        set_simulation("SIMCUDA_DELAY_US", "30000");
        CHECK(pair.peer.connection().get(local.data(), kBytes, remote, nullptr,
                                         outcome.completion()) == Status::in_progress);
        CHECK(pair.peer.connection().flush(nullptr, flushed.completion()) == Status::in_progress);
    }
    pair.peer.kill();
    if (moment != 3) {
        pair.peer.connection().check_peer_soon();
    }
    if (moment == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(60));  // the copy is over, unseen
    }
    CHECK(progress_until({&*pair.port}, [&] { return pair.port->failed_connections.size() == 1; }));
    set_simulation("SIMCUDA_DELAY_US", "5");
    if (copying) {
        CHECK(outcome.calls == 1 && flushed.calls == 1);
        CHECK(outcome.status == Status::ok || outcome.status == Status::peer_failed);
        CHECK(outcome.status != Status::ok || local.check(0, kBytes, 500, 0).empty());
    }
    // No copy is left, nor the mapping.
    local.fill(2);
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    CHECK(local.check(0, kBytes, 2, 0).empty());
    settle({&*pair.port});
    CHECK(await_background_calls("cuIpcCloseMemHandle", 1));
    CHECK(pair.get(local.data(), kBytes, remote) == Status::peer_failed);
    return 0;
}

FreshProcess killed_idle("killed-while-mapped", [] { return outlive(0); });
FreshProcess killed_copying("killed-after-the-copy", [] { return outlive(1); });
FreshProcess killed_seen("killed-during-the-copy", [] { return outlive(2); });
FreshProcess killed_unasked("killed-while-nobody-asks", [] { return outlive(3); });

TEST(PortGpuMappingFaults, DeathOfThePeerEndsItsMappings) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(killed_idle.run(), 0);
    EXPECT_EQ(killed_copying.run(), 0);
    EXPECT_EQ(killed_seen.run(), 0);
    EXPECT_EQ(killed_unasked.run(), 0);
}

/** Afterwards nobody tells any more when the memory is freed, so it must not be kept. */
FreshProcess closed("peer-closes-its-port", [] {
    Pair pair(1);
    CHECK(pair.start());
    const RemoteMemory remote = pair.peer.allocate(kBytes);
    Buffer local(MemoryKind::device, kBytes);
    CHECK(pull(pair, remote, local, 0, kUntilMapped) == 0);
    pair.peer.close_port();
    CHECK(pair.await_calls("cuIpcCloseMemHandle", 1));
    CHECK(await_background_calls("cuIpcCloseMemHandle", 1));
    return 0;
});

TEST(PortGpuMappingFaults, PeerThatClosesItsPortIsUnmapped) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(closed.run(), 0);
}

constexpr int kOtherRole = 78;  // of the two processes the other one copies; by chance

/** It closes while it copies into memory of this process, on one GPU. */
FreshProcess closed_pushing("closed-during-its-push", [] {
    Pair pair(0);
    CHECK(pair.start());
    if (pair.precedes()) {
        return pair.peer.finish() == 0 ? kOtherRole : 1;
    }
    const LogCapture log;
    const RemoteMemory remote = pair.peer.allocate(kBytes);
    Buffer local(MemoryKind::device, kBytes);
    CHECK(pull(pair, remote, local, 0, kUntilMapped) == 0);
    pair.peer.reset_calls();
    pair.peer.simulate("SIMCUDA_DELAY_US", "500000");
    Outcome outcome;
    CHECK(pair.peer.connection().get(local.data(), kBytes, remote, nullptr, outcome.completion()) ==
          Status::in_progress);
    CHECK(progress_until({&*pair.port}, [&] {
        return pair.peer.calls("cuMemcpyAsync") + pair.peer.calls("cuMemcpyBatchAsync") != 0;
    }));
    pair.peer.close_port();
    CHECK(progress_until({&*pair.port}, [&] { return outcome.done(); }));
    CHECK(outcome.calls == 1);
    CHECK(log.count("does not end a copy") == 0);
    pair.peer.kill();
    return 0;
});

TEST(PortGpuMappingFaults, PeerThatClosesDuringItsPushIsNotWaitedFor) {
    SKIP_UNLESS_SIMULATED();
    int status = kOtherRole;
    for (int i = 0; i < 20 && status == kOtherRole; ++i) {
        status = closed_pushing.run();
    }
    EXPECT_EQ(status, 0);
}

FreshProcess destroyed("own-port-ends", [] {
    Pair pair(1);
    CHECK(pair.start());
    const RemoteMemory remote = pair.peer.allocate(kBytes);
    Buffer local(MemoryKind::device, kBytes);
    CHECK(pull(pair, remote, local, 0, kUntilMapped) == 0);
    set_simulation("SIMCUDA_DELAY_US", "20000");
    Outcome outcome;
    CHECK(pair.peer.connection().get(local.data(), kBytes, remote, nullptr, outcome.completion()) ==
          Status::in_progress);
    pair.port->destroy();
    CHECK(await_background_calls("cuIpcCloseMemHandle", 1));
    set_simulation("SIMCUDA_DELAY_US", "5");
    local.fill(2);
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    CHECK(local.check(0, kBytes, 2, 0).empty());
    return 0;
});

TEST(PortGpuMappingFaults, PortThatEndsUnmaps) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(destroyed.run(), 0);
}

// ---------------------------------------------------------------- cancel

/** The owner's memory is its own again when cancel() returns, whoever was to write it. */
int cancel_at(CUdevice peer_device, int moment) {
    Pair pair(peer_device);
    CHECK(pair.start());
    const RemoteMemory remote = pair.peer.allocate(kBytes);
    Buffer local(MemoryKind::device, kBytes);
    CHECK(pull(pair, remote, local, 0, kUntilMapped) == 0);
    for (uint64_t i = 0; i < 5; ++i) {
        pair.peer.fill(1);
        set_simulation("SIMCUDA_DELAY_US", "3000");
        pair.peer.simulate("SIMCUDA_DELAY_US", "3000");
        Outcome outcome;
        CHECK(pair.peer.connection().get(local.data(), kBytes, remote, &kOwner,
                                         outcome.completion()) == Status::in_progress);
        std::this_thread::sleep_for(std::chrono::milliseconds(moment));
        pair.peer.connection().cancel(&kOwner);
        CHECK(outcome.calls == 0);
        set_simulation("SIMCUDA_DELAY_US", "5");
        local.fill(2);
        std::this_thread::sleep_for(std::chrono::milliseconds(8));
        pair.peer.simulate("SIMCUDA_DELAY_US", "5");
        settle({&*pair.port});
        CHECK(local.check(0, kBytes, 2, 0).empty());
        CHECK(outcome.calls == 0);
    }
    return pair.peer.finish();
}

/** The peer stops for so long that a cancel gives up; then it goes on, and copies as before. */
FreshProcess cancelled_again("cancelled-again", [] {
    Pair pair(1);
    CHECK(pair.start());
    const LogCapture log;
    const RemoteMemory remote = pair.peer.allocate(kBytes, Buffer::Allocator::pinned);
    Buffer local(MemoryKind::device, kBytes);
    CHECK(pull(pair, remote, local, 0, 60) == 0);
    CHECK(pair.peer.calls("cuIpcOpenMemHandle") == 1);
    pair.peer.simulate("SIMCUDA_DELAY_US", "300000");
    for (const bool stopped : {true, false}) {
        Outcome outcome;
        const unsigned long copies = pair.peer.calls("cuMemcpyAsync");
        CHECK(pair.peer.connection().get(local.data(), kBytes, remote, &kOwner,
                                         outcome.completion()) == Status::in_progress);
        const Deadline deadline;
        while (pair.peer.calls("cuMemcpyAsync") == copies && !deadline.passed()) {
        }
        if (stopped) {
            ::kill(pair.peer.connection().peer().pid, SIGSTOP);
        }
        pair.peer.connection().cancel(&kOwner);
        if (stopped) {
            CHECK(log.count("does not end a copy") == 1);
            ::kill(pair.peer.connection().peer().pid, SIGCONT);
            std::this_thread::sleep_for(std::chrono::milliseconds(600));
            settle({&*pair.port});
        }
    }
    CHECK(log.count("does not end a copy") == 1);
    local.fill(77);
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    CHECK(local.check(0, kBytes, 77, 0).empty());
    pair.peer.simulate("SIMCUDA_DELAY_US", "5");
    return pair.peer.finish();
});

TEST(PortGpuMappingFaults, APeerThatWasLateOnceIsWaitedForAgain) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(cancelled_again.run(), 0);
}

FreshProcess cancelled_pull("cancelled-pull", [] { return cancel_at(1, 0); });
FreshProcess cancelled_late("cancelled-pull-late", [] { return cancel_at(1, 2); });
FreshProcess cancelled_one_gpu("cancelled-on-one-gpu", [] { return cancel_at(0, 1); });

TEST(PortGpuMappingFaults, CancelledOwnersMemoryIsLeftAlone) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(cancelled_pull.run(), 0);
    EXPECT_EQ(cancelled_late.run(), 0);
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(cancelled_one_gpu.run(), 0);
    }
}

}  // namespace
}  // namespace gpushm
