// SPDX-License-Identifier: BSD-3-Clause
// Processes that wait for each other in a ring: each gets from the next one, which writes into its
// GPU's memory, and all give that up at once.
#include "core/pinning/host_registration_cache.hpp"

#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/core/transport/port_support.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 2 << 20;
constexpr int kProcesses = 3;
constexpr int kRounds = 12;  // until the source is page-locked and the destination mapped

struct Shown {
    MailboxAddress mailbox;
    RemoteMemory memory;
};

/** Progresses until the parent says that all have come so far. */
bool await_all(TestPort &port, const Channel &channel) {
    std::atomic<int> answer{0};
    channel.send(1);
    std::thread reader([&] {
        int nothing = 0;
        answer = channel.receive(&nothing) ? 1 : -1;
    });
    const bool came = progress_until({&port}, [&] { return answer != 0; });
    reader.join();
    return came && answer == 1;
}

int get_and_give_up(const Channel &channel) {
    CHECK(enter_primary_context(0) != nullptr);
    HostRegistrationCache::instance().enable(size_t{1} << 30);
    std::optional<TestPort> port(kMappingPort);
    Buffer source(MemoryKind::host, kBytes);
    Buffer destination(MemoryKind::device, kBytes);
    const Registration registration(source.data(), kBytes);
    channel.send(Shown{(*port)->address(), registration.named()});
    Shown next = {};
    CHECK(channel.receive(&next));
    Connection &connection = port->connection(next.mailbox);
    const auto get = [&](Outcome &outcome) {
        return connection.get(destination.data(), kBytes, next.memory, &connection,
                              outcome.completion());
    };
    for (int i = 0; i < kRounds; ++i) {
        Outcome outcome;
        CHECK(get(outcome) == Status::in_progress);
        CHECK(progress_until({&*port}, [&] { return outcome.done(); }) &&
              outcome.status == Status::ok);
    }
    CHECK(await_all(*port, channel));  // no copy is under way any more
    set_simulation("SIMCUDA_DELAY_US", "500000");
    reset_calls();
    CHECK(await_all(*port, channel));
    Outcome outcome;
    CHECK(get(outcome) == Status::in_progress);
    // The copy of this process is for the one before it: the next one makes this one's.
    CHECK(progress_until({&*port}, [] { return calls("cuMemcpyAsync") != 0; }));
    channel.send(1);
    int nothing = 0;
    CHECK(channel.receive(&nothing));
    const LogCapture log;
    connection.cancel(&connection);
    CHECK(!outcome.done() && log.count("does not end a copy") == 0);
    set_simulation("SIMCUDA_DELAY_US", "5");
    CHECK(await_all(*port, channel));
    return 0;
}

FreshProcess ring("three-that-give-up-at-once", [] {
    std::vector<std::unique_ptr<Child>> children;
    std::vector<Shown> shown(kProcesses);
    for (int i = 0; i < kProcesses; ++i) {
        children.push_back(std::make_unique<Child>(get_and_give_up));
    }
    for (int i = 0; i < kProcesses; ++i) {
        CHECK(children[i]->channel().receive(&shown[i]));
    }
    for (int i = 0; i < kProcesses; ++i) {
        children[i]->channel().send(shown[(i + 1) % kProcesses]);
    }
    for (int barrier = 0; barrier < 4; ++barrier) {
        int came = 0;
        for (const auto &child : children) {
            CHECK(child->channel().receive(&came));
        }
        for (const auto &child : children) {
            child->channel().send(1);
        }
    }
    for (const auto &child : children) {
        CHECK(child->reap() == 0);
    }
    return 0;
});

TEST(PortGpuRing, NobodyWaitsInVainForACopyThatIsOver) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(ring.run(), 0);
}

}  // namespace
}  // namespace gpushm
