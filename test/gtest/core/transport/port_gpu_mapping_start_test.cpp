// SPDX-License-Identifier: BSD-3-Clause
// When a peer's buffer is mapped: how many messages go before, in programs that send a buffer many
// times, once, or a few times, and that no message waits for it.
#include "test/gtest/core/transport/port_gpu_peer.hpp"

#include "core/reclaim/context_lifetime.hpp"

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 4096;
constexpr size_t kLong = 4 << 20;  // waits for its mapping
constexpr unsigned long kMaxOnTrust = 8;
constexpr char kOwner = 0;

unsigned long opened() {
    return calls("cuIpcOpenMemHandle");
}

/** Whether the handle that was asked for is here and opened. */
bool await_opened(Pair &pair, unsigned long count) {
    return pair.await_calls("cuIpcOpenMemHandle", count);
}

/** A get of fresh bytes. */
int pull(Pair &pair, Buffer &local, size_t length, const RemoteMemory &remote, uint64_t seed) {
    pair.peer.fill(seed);
    CHECK(pair.get(local.data(), length, remote) == Status::ok);
    CHECK(local.check(0, length, seed, 0).empty());
    return 0;
}

/** The staging rings of both directions, which gets would else not wait for. */
int make_rings(Pair &pair, Buffer &local) {
    const RemoteMemory remote = pair.peer.allocate(kBytes, Buffer::Allocator::host);
    CHECK(pull(pair, local, kBytes, remote, 1) == 0);
    CHECK(pair.put(local.data(), kBytes, remote) == Status::ok && opened() == 0);
    pair.peer.release();
    return 0;
}

/** What was opened when an operation ended. */
struct OpenedAtEnd {
    static void complete(void *self, Status status) {
        static_cast<OpenedAtEnd *>(self)->count = opened();
        static_cast<OpenedAtEnd *>(self)->status = status;
    }
    Status status = Status::in_progress;
    unsigned long count = 0;
};

/** The first message goes through the ring and does not wait for the mapping; the second goes
 * through that. */
int map_at_first(bool put) {
    Pair pair(1);
    CHECK(pair.start());
    Buffer local(MemoryKind::device, kBytes);
    CHECK(make_rings(pair, local) == 0);
    for (unsigned long buffers = 1; buffers <= 3; ++buffers) {
        const RemoteMemory remote = pair.peer.allocate(kBytes);
        pair.peer.fill(2 * buffers);
        local.fill(2 * buffers + 1);
        OpenedAtEnd end;
        const Completion completion = {OpenedAtEnd::complete, &end};
        Connection &connection = pair.peer.connection();
        CHECK((put ? connection.put(local.data(), kBytes, remote, nullptr, completion)
                   : connection.get(local.data(), kBytes, remote, nullptr, completion)) ==
              Status::in_progress);
        CHECK(progress_until({&*pair.port}, [&] { return end.status != Status::in_progress; }));
        CHECK(end.status == Status::ok && end.count == buffers - 1);
        CHECK(put ? pair.peer.holds(2 * buffers + 1)
                  : local.check(0, kBytes, 2 * buffers, 0).empty());
        CHECK(await_opened(pair, buffers));
        pair.peer.reset_calls();
        CHECK((put ? pair.put(local.data(), kBytes, remote)
                   : pair.get(local.data(), kBytes, remote)) == Status::ok);
        CHECK(pair.peer.calls_besides("cuPointerGetAttributes") == 0);
        pair.peer.release();
    }
    CHECK(opened() == 3);
    return pair.peer.finish();
}

FreshProcess first_get("mapped-at-first-get", [] { return map_at_first(false); });
FreshProcess first_put("mapped-at-first-put", [] { return map_at_first(true); });

TEST(PortGpuMappingStart, AFreshBufferIsMappedBesideItsFirstMessage) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(first_get.run(), 0);
    EXPECT_EQ(first_put.run(), 0);
}

/** Each pulls from the other, as in a step of a program, from two buffers in turn. */
FreshProcess exchange("mapped-on-both-sides", [] {
    constexpr uint64_t kSteps = 20;
    Pair pair(1);
    CHECK(pair.start());
    Buffer sources[] = {{MemoryKind::device, kBytes}, {MemoryKind::device, kBytes}};
    Buffer target(MemoryKind::device, kBytes);
    CHECK(make_rings(pair, target) == 0);
    const RemoteMemory remote = pair.peer.allocate(kBytes);
    const Registration registrations[] = {{sources[0].data(), kBytes}, {sources[1].data(), kBytes}};
    for (uint64_t step = 0; step < kSteps; ++step) {
        if (step == 3) {
            pair.peer.reset_calls();
        }
        CHECK(pull(pair, target, kBytes, remote, step) == 0);
        sources[step % 2].fill(1000 + step);
        CHECK(pair.peer.get(registrations[step % 2].named(), kBytes) == Status::ok);
        CHECK(pair.peer.holds(1000 + step));
        if (step == 2) {
            CHECK(opened() == 1 && pair.peer.calls("cuIpcOpenMemHandle") == 2);
        }
    }
    CHECK(opened() == 1 && pair.peer.calls("cuIpcOpenMemHandle") == 0);
    CHECK(pair.peer.calls("cuMemcpyAsync") == kSteps - 3);  // its own gets, and nothing for ours
    return pair.peer.finish();
});

TEST(PortGpuMappingStart, BothSidesMapWithinTheirFirstMessages) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(exchange.run(), 0);
}

/** `messages` to each of `buffers` buffers, one after the other. */
int use_buffers(Pair &pair, Buffer &local, uint64_t buffers, uint64_t messages) {
    for (uint64_t i = 0; i < buffers; ++i) {
        const RemoteMemory remote = pair.peer.allocate(kBytes);
        for (uint64_t message = 0; message < messages; ++message) {
            CHECK(pull(pair, local, kBytes, remote, 100 * i + message) == 0);
        }
        pair.peer.release();
    }
    return 0;
}

FreshProcess once("each-buffer-once", [] {
    Pair pair(1);
    CHECK(pair.start());
    Buffer local(MemoryKind::device, kBytes);
    CHECK(use_buffers(pair, local, 60, 1) == 0);
    CHECK(opened() == kMaxOnTrust && pair.peer.calls("cuIpcGetMemHandle") == kMaxOnTrust);
    // Those that come again are worth it all the same, and restore the trust.
    for (unsigned long i = 1; i <= 3; ++i) {
        CHECK(use_buffers(pair, local, 1, 30) == 0);
        CHECK(opened() == kMaxOnTrust + i);
    }
    CHECK(use_buffers(pair, local, 1, 1) == 0);
    settle({&*pair.port});
    CHECK(opened() == kMaxOnTrust + 4);
    return pair.peer.finish();
});

TEST(PortGpuMappingStart, AProgramThatUsesEachBufferOnceMapsNearlyNone) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(once.run(), 0);
}

/** A mapping costs 0.25 ms or more, and one message through it saves 10 us: in a debt of 8 ms at
 * most 37 are made. */
FreshProcess few("each-buffer-three-times", [] {
    constexpr unsigned long kMaxInDebt = 37;
    Pair pair(1);
    CHECK(pair.start());
    Buffer local(MemoryKind::device, kBytes);
    CHECK(use_buffers(pair, local, 2 * kMaxInDebt, 3) == 0);
    CHECK(opened() > kMaxOnTrust && opened() <= kMaxInDebt);
    return pair.peer.finish();
});

TEST(PortGpuMappingStart, MappingsThatDoNotPayComeToAnEnd) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(few.run(), 0);
}

FreshProcess alternately("two-buffers-in-turn", [] {
    constexpr uint64_t kLives = 10;
    Pair pair(1);
    CHECK(pair.start());
    Buffer local(MemoryKind::device, kBytes);
    for (uint64_t life = 0; life < kLives; ++life) {
        const RemoteMemory remote = pair.peer.allocate(kBytes);
        for (uint64_t i = 0; i < 30; ++i) {
            CHECK(pull(pair, local, kBytes, remote, 100 * life + i) == 0);
            CHECK(i < 2 || opened() == life + 1);
        }
        pair.peer.release();
    }
    CHECK(pair.peer.same_addresses() != 0);
    CHECK(pair.await_calls("cuIpcCloseMemHandle", kLives));
    return pair.peer.finish();
});

TEST(PortGpuMappingStart, EachLifeOfAnAddressIsMappedBesideItsFirstMessage) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(alternately.run(), 0);
}

// ---------------------------------------------------------------- messages that wait

/** Long ones wait for the mapping, and nothing goes through the ring; so do short ones of a pair
 * that has none. */
int hold_gets(size_t length, bool has_ring) {
    Pair pair(1);
    CHECK(pair.start());
    Buffer first(MemoryKind::device, kBytes);
    CHECK(!has_ring || make_rings(pair, first) == 0);
    const RemoteMemory remote = pair.peer.allocate(kLong);
    std::deque<Buffer> locals;
    std::deque<Outcome> outcomes(4);
    pair.peer.fill(7);
    pair.peer.reset_calls();
    for (Outcome &outcome : outcomes) {
        Buffer &local = locals.emplace_back(MemoryKind::device, length);
        CHECK(pair.peer.connection().get(local.data(), length, remote, nullptr,
                                         outcome.completion()) == Status::in_progress);
    }
    CHECK(progress_until({&*pair.port}, [&] { return outcomes.back().done(); }));
    settle({&*pair.port});
    for (size_t i = 0; i < outcomes.size(); ++i) {
        CHECK(outcomes[i].calls == 1 && outcomes[i].status == Status::ok);
        CHECK(locals[i].check(0, length, 7, 0).empty());
    }
    CHECK(opened() == 1 && pair.peer.calls("cuMemcpyAsync") == 0);
    CHECK(pair.peer.calls("cuMemHostRegister") == 0);
    return pair.peer.finish();
}

FreshProcess held_long("long-messages-wait", [] { return hold_gets(kLong, true); });
FreshProcess held_without_ring("messages-without-a-ring-wait",
                               [] { return hold_gets(kBytes, false); });

/** Of several at a time each but the first waits for the one before it (Connection::put). */
int hold_put(size_t length, bool has_ring) {
    Pair pair(1);
    CHECK(pair.start());
    Buffer first(MemoryKind::device, kBytes);
    CHECK(!has_ring || make_rings(pair, first) == 0);
    Buffer local(MemoryKind::device, length);
    const RemoteMemory remote = pair.peer.allocate(length);
    pair.peer.reset_calls();
    for (uint64_t i = 0; i < 3; ++i) {
        local.fill(i);
        CHECK(pair.put(local.data(), length, remote) == Status::ok);
        CHECK(i != 0 ||
              (pair.peer.calls("cuMemcpyAsync") == 0 && pair.peer.calls("cuMemHostRegister") == 0));
        CHECK(pair.peer.holds(i));
    }
    CHECK(opened() == 1);
    return pair.peer.finish();
}

FreshProcess held_put("long-put-waits", [] { return hold_put(kLong, true); });
FreshProcess held_put_without_ring("put-without-a-ring-waits",
                                   [] { return hold_put(kBytes, false); });

int run_refused(const PortConfig &peer_config, const char *here, const char *there) {
    Pair pair(1, peer_config);
    CHECK(pair.start());
    const LogCapture log;
    const RemoteMemory remote = pair.peer.allocate(kLong);
    Buffer local(MemoryKind::device, kLong);
    set_simulation("SIMCUDA_FAIL", here);
    pair.peer.simulate("SIMCUDA_FAIL", there);
    CHECK(pull(pair, local, kLong, remote, 1) == 0);
    CHECK(pull(pair, local, kLong, remote, 2) == 0);
    CHECK(pair.peer.calls("cuMemcpyAsync") != 0);
    const RemoteMemory other = pair.peer.allocate(kLong);
    set_simulation("SIMCUDA_FAIL", here);
    pair.peer.simulate("SIMCUDA_FAIL", there);
    local.fill(3);
    CHECK(pair.put(local.data(), kLong, other) == Status::ok && pair.peer.holds(3));
    return pair.peer.finish();
}

FreshProcess refused_here("long-refused-by-the-importers-driver",
                          [] { return run_refused(kMappingPort, "cuIpcOpenMemHandle:1:1", ""); });
FreshProcess refused_there("long-refused-by-the-owners-driver",
                           [] { return run_refused(kMappingPort, "", "cuIpcGetMemHandle:1:1"); });
FreshProcess refused_by_setting("long-refused-by-the-owners-setting",
                                [] { return run_refused(kSmallPort, "", ""); });

TEST(PortGpuMappingStart, MessagesWaitForTheMappingWhereTheRingTakesLonger) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(held_long.run(), 0);
    EXPECT_EQ(held_without_ring.run(), 0);
    EXPECT_EQ(held_put.run(), 0);
    EXPECT_EQ(held_put_without_ring.run(), 0);
    EXPECT_EQ(refused_here.run(), 0);
    EXPECT_EQ(refused_there.run(), 0);
    EXPECT_EQ(refused_by_setting.run(), 0);
}

/** A message that has waited in vain is still one message: its buffer has not come again. */
FreshProcess refused_once("long-refused-and-met-once", [] {
    Pair pair(1);
    CHECK(pair.start());
    const LogCapture log;
    Buffer local(MemoryKind::device, kLong);
    for (uint64_t i = 0; i < 20; ++i) {
        const RemoteMemory remote = pair.peer.allocate(kLong);
        pair.peer.simulate("SIMCUDA_FAIL", i % 3 == 2 ? "" : "cuIpcGetMemHandle:1:1");
        CHECK(pull(pair, local, kLong, remote, i) == 0);
        pair.peer.simulate("SIMCUDA_FAIL", "");
        pair.peer.release();
    }
    CHECK(pair.peer.calls("cuIpcGetMemHandle") == kMaxOnTrust + 1);  // and of the GPU ring
    return pair.peer.finish();
});

TEST(PortGpuMappingStart, AMessageThatWaitsInVainCountsOnce) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(refused_once.run(), 0);
}

/** Given up while they wait: the memory is the owner's at once, and the others end as usual. */
FreshProcess cancelled_put("long-put-cancelled", [] {
    Pair pair(1);
    CHECK(pair.start());
    const RemoteMemory remote = pair.peer.allocate(kLong);
    Buffer given_up(MemoryKind::device, kLong);
    Outcome never;
    given_up.fill(7);
    pair.peer.fill(8);
    CHECK(pair.peer.connection().put(given_up.data(), kLong, remote, &kOwner, never.completion()) ==
          Status::in_progress);
    std::vector<Completion> ended;
    pair.peer.connection().cancel(&kOwner, &ended);
    settle({&*pair.port});
    CHECK(ended.size() == 1 && never.calls == 0 && (*pair.port)->idle());
    CHECK(pair.peer.holds(8));
    return pair.peer.finish();
});

FreshProcess cancelled("long-messages-cancelled", [] {
    Pair pair(1);
    CHECK(pair.start());
    const RemoteMemory remote = pair.peer.allocate(kLong);
    Buffer given_up(MemoryKind::device, kLong);
    Buffer local(MemoryKind::device, kLong);
    pair.peer.fill(7);
    Outcome never;
    Outcome outcome;
    Connection &connection = pair.peer.connection();
    CHECK(connection.get(given_up.data(), kLong, remote, &kOwner, never.completion()) ==
          Status::in_progress);
    CHECK(connection.get(local.data(), kLong, remote, nullptr, outcome.completion()) ==
          Status::in_progress);
    connection.cancel(&kOwner);
    given_up.fill(9);
    CHECK(progress_until({&*pair.port}, [&] { return outcome.done(); }));
    settle({&*pair.port});
    CHECK(outcome.status == Status::ok && local.check(0, kLong, 7, 0).empty());
    CHECK(never.calls == 0 && given_up.check(0, kLong, 9, 0).empty());
    return pair.peer.finish();
});

TEST(PortGpuMappingStart, LongMessagesMayBeGivenUpBeforeTheMapping) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(cancelled.run(), 0);
    EXPECT_EQ(cancelled_put.run(), 0);
}

// ---------------------------------------------------------------- contexts that end

/** A context is about to end, by another thread, when the handle comes. */
int open_afterwards(size_t length) {
    Pair pair(1);
    CHECK(pair.start());
    Buffer first(MemoryKind::device, kBytes);
    CHECK(make_rings(pair, first) == 0);
    Buffer local(MemoryKind::device, length);
    const RemoteMemory remote = pair.peer.allocate(length);
    std::atomic<bool> ends{false};
    std::atomic<bool> may_end{false};
    std::thread other([&] {
        const ContextLifetimeLock end(ContextLifetimeLock::Mode::ending);
        ends = true;
        while (!may_end) {
            std::this_thread::yield();
        }
    });
    while (!ends) {
        std::this_thread::yield();
    }
    const bool right = pull(pair, local, length, remote, 1) == 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
    while (std::chrono::steady_clock::now() < end) {
        (*pair.port)->progress();
    }
    const unsigned long meanwhile = opened();
    may_end = true;
    other.join();
    CHECK(right && meanwhile == 0);
    CHECK(await_opened(pair, 1));
    return pair.peer.finish();
}

FreshProcess opened_afterwards("opened-after-the-end-of-a-context",
                               [] { return open_afterwards(kBytes); });
FreshProcess held_meanwhile("long-message-while-a-context-ends",
                            [] { return open_afterwards(kLong); });

TEST(PortGpuMappingStart, NothingIsOpenedWhileAContextEndsAndNoMessageWaitsForIt) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(opened_afterwards.run(), 0);
    EXPECT_EQ(held_meanwhile.run(), 0);
}

// ---------------------------------------------------------------- peers that go away

/** The peer does not answer any more when its buffer is met, and dies. */
int outlive(size_t length) {
    Pair pair(1);
    CHECK(pair.start());
    const RemoteMemory remote = pair.peer.allocate(kLong);
    std::deque<Buffer> locals;
    std::deque<Outcome> outcomes(6);
    pair.peer.sleep();
    for (Outcome &outcome : outcomes) {
        Buffer &local = locals.emplace_back(MemoryKind::device, kLong);
        CHECK(pair.peer.connection().get(local.data(), length, remote, nullptr,
                                         outcome.completion()) == Status::in_progress);
        (*pair.port)->progress();
    }
    CHECK(opened() == 0);
    pair.peer.kill();
    CHECK(progress_until({&*pair.port}, [&] { return pair.port->failed_connections.size() == 1; }));
    for (const Outcome &outcome : outcomes) {
        CHECK(outcome.calls == 1 && outcome.status == Status::peer_failed);
    }
    settle({&*pair.port});
    CHECK(opened() == 0 && (*pair.port)->idle());
    return 0;
}

FreshProcess killed_short("killed-before-its-first-answer", [] { return outlive(kBytes); });
FreshProcess killed_long("killed-while-long-messages-wait", [] { return outlive(kLong); });

/** Its handle has come, and is not opened yet, when it dies. */
FreshProcess killed_given("killed-after-its-answer", [] {
    Pair pair(1);
    CHECK(pair.start());
    Buffer local(MemoryKind::device, kBytes);
    CHECK(make_rings(pair, local) == 0);
    const RemoteMemory remote = pair.peer.allocate(kBytes);
    pair.peer.simulate("SIMCUDA_DELAY_US", "5000000");
    Outcome outcome;
    CHECK(pair.peer.connection().get(local.data(), kBytes, remote, nullptr, outcome.completion()) ==
          Status::in_progress);
    const std::chrono::milliseconds kUntilAnswered{100};
    const auto end = std::chrono::steady_clock::now() + kUntilAnswered;
    CHECK(progress_until({&*pair.port}, [&] { return std::chrono::steady_clock::now() > end; }));
    CHECK(!outcome.done() && opened() == 0);
    pair.peer.kill();
    CHECK(progress_until({&*pair.port}, [&] { return pair.port->failed_connections.size() == 1; }));
    CHECK(outcome.calls == 1 && outcome.status == Status::peer_failed);
    settle({&*pair.port});
    CHECK(opened() == 0);
    return 0;
});

TEST(PortGpuMappingStart, PeerMayDieBeforeItIsMapped) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(killed_short.run(), 0);
    EXPECT_EQ(killed_long.run(), 0);
    EXPECT_EQ(killed_given.run(), 0);
}

}  // namespace
}  // namespace gpushm
