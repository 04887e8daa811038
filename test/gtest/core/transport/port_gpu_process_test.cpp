// SPDX-License-Identifier: BSD-3-Clause
// GPU memory between two processes, also when one of them is killed.
#include "test/gtest/core/transport/port_gpu_peer.hpp"

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 2000001;

struct PeerAddress {
    MailboxAddress mailbox;
    RemoteMemory memory;  // kBytes of device memory with the pattern 7
};

/** Offers device memory, echoes messages out of it, and says whether the pattern 8 came. */
int serve(const Channel &channel) {
    CHECK(enter_primary_context(0));
    Buffer memory(MemoryKind::device, kBytes);
    memory.fill(7);
    TestPort port;
    const Registration registration(memory.data(), kBytes);
    channel.send(PeerAddress{port->address(), registration.at()});
    MailboxAddress other;
    CHECK(channel.receive(&other));
    Connection &connection = port.connection(other);
    CHECK(progress_until({&port}, [&] { return !port.messages.empty(); }));
    const Piece piece = {memory.data(), 8000};
    Outcome outcome;
    const Status status =
        connection.am_pieces(2, nullptr, 0, &piece, 1, nullptr, outcome.completion());
    CHECK(status == Status::ok || status == Status::in_progress);
    CHECK(progress_until({&port}, [&] { return port.messages.size() == 2; }));
    CHECK(memory.check(0, kBytes, 8, 0).empty());
    return 0;
}

/** The children are forked before this process initialises CUDA. */
FreshProcess exchange("exchange", [] {
    Child child(serve);
    PeerAddress peer;
    CHECK(child.channel().receive(&peer));
    CHECK(enter_primary_context(0));
    Buffer local(MemoryKind::device, kBytes);
    TestPort port;
    child.channel().send(port->address());
    Connection &connection = port.connection(peer.mailbox);
    Outcome get;
    CHECK(connection.get(local.data(), kBytes, peer.memory, nullptr, get.completion()) ==
          Status::in_progress);
    CHECK(progress_until({&port}, [&] { return get.done(); }));
    CHECK(get.status == Status::ok && local.check(0, kBytes, 7, 0).empty());
    CHECK(connection.am_short(1, 0, nullptr, 0) == Status::ok);
    CHECK(progress_until({&port}, [&] { return !port.messages.empty(); }));
    CHECK(check_message(port.messages.front(), 2, 8000, 7).empty());
    local.fill(8);
    Outcome put;
    CHECK(connection.put(local.data(), kBytes, peer.memory, nullptr, put.completion()) ==
          Status::in_progress);
    CHECK(progress_until({&port}, [&] { return put.done(); }));
    CHECK(put.status == Status::ok);
    CHECK(connection.am_short(1, 0, nullptr, 0) == Status::ok);
    return child.reap();
});

TEST(PortGpuProcesses, ExchangeDeviceMemory) {
    EXPECT_EQ(exchange.run(), 0);
}

/** The simulated driver keeps two descriptors from the first memory on that it page-locks. */
bool lock_some_memory() {
    std::vector<char> memory(kBytes);
    const CudaDriver *driver = CudaDriver::get();
    return driver->mem_host_register(memory.data(), memory.size(), 0) == CUDA_SUCCESS &&
           driver->mem_host_unregister(memory.data()) == CUDA_SUCCESS;
}

/** The peer dies while copies into and out of its ring run, a little later for each `moment`. */
int outlive(int moment) {
    Child child(serve);
    PeerAddress peer;
    CHECK(child.channel().receive(&peer));
    CHECK(enter_primary_context(0));
    Buffer source(MemoryKind::device, kBytes);
    Buffer target(MemoryKind::device, kBytes);
    source.fill(1);
    { const TestPort first; }  // makes what stays in a process
    CHECK(lock_some_memory());
    const size_t descriptors = open_descriptors();
    {
        TestPort port;
        child.channel().send(port->address());
        Connection &connection = port.connection(peer.mailbox);
        Outcome outcomes[3];
        RemoteMemory behind = peer.memory;
        behind.address += kBytes / 2;
        CHECK(connection.put(source.data(), kBytes / 2, peer.memory, nullptr,
                             outcomes[0].completion()) == Status::in_progress);
        CHECK(connection.get(target.data(), kBytes / 2, behind, nullptr,
                             outcomes[1].completion()) == Status::in_progress);
        CHECK(connection.flush(nullptr, outcomes[2].completion()) == Status::in_progress);
        const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(300 * moment);
        while (std::chrono::steady_clock::now() < end) {
            port->progress();
        }
        if (simulated()) {
            set_simulation("SIMCUDA_DELAY_US", "5000");
        }
        port->progress();
        child.kill_hard();
        CHECK(progress_until({&port}, [&] { return port.failed_connections.size() == 1; }));
        settle({&port});
        for (const Outcome &outcome : outcomes) {
            CHECK(outcome.calls == 1);
            CHECK(outcome.status == Status::peer_failed);
        }
        // No copy is left that could write into it.
        target.fill(2);
        CHECK(target.check(0, 0, 0, 2).empty());
    }
    CHECK(await_background());
    CHECK(mappings_named("memfd:gpushm") == 0);
    CHECK(open_descriptors() == descriptors);
    return 0;
}

FreshProcess killed("killed", [] {
    for (int moment = 0; moment < 4; ++moment) {
        Child step([&](const Channel &) { return outlive(moment); });
        CHECK(step.reap() == 0);
    }
    return 0;
});

TEST(PortGpuProcesses, DeathOfThePeerEndsAllCopies) {
    EXPECT_EQ(killed.run(), 0);
}

}  // namespace
}  // namespace gpushm
