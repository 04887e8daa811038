// SPDX-License-Identifier: BSD-3-Clause
// GPU memory that no other process can map, from one GPU to another: through host memory at first,
// then through the GPU ring.
#include "core/standby/gpu_sharing.hpp"

#include "test/gtest/core/full_gpu.hpp"
#include "test/gtest/core/transport/port_gpu_peer.hpp"

#include <chrono>
#include <optional>
#include <thread>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kChunk = 1 << 20;
constexpr size_t kBytes = 4 * kChunk;
constexpr size_t kShort = 128 << 10;
// As many pass through host memory before it pays, and while the answer is on its way.
constexpr uint64_t kUntilMade = 10;
constexpr PortConfig kPort = {8 << 20, kChunk, 16 << 10, 64, true};
constexpr auto kPool = Buffer::Allocator::pool;

/** A pair with kernels in both contexts, and a buffer of a pool in each process. */
struct UnmappedPair : Pair {
    explicit UnmappedPair(CUdevice peer_device) : Pair(peer_device, kPort) {}
    bool start() {
        if (!Pair::start(kPort) || !load_kernels(current_context()) || !peer.load_kernels()) {
            return false;
        }
        local.emplace(kPool, kBytes);
        remote = peer.allocate(kBytes, kPool);
        return !remote.buffer.can_be_mapped();
    }
    /** Fresh bytes, which arrive. */
    bool moves(bool put, size_t length = kBytes) {
        seed += 2;
        local->fill(seed);
        peer.fill(seed + 1);
        return (put ? Pair::put(local->data(), length, remote)
                    : Pair::get(local->data(), length, remote)) == Status::ok &&
               (length != kBytes ||
                (put ? peer.holds(seed) : local->check(0, kBytes, seed + 1, 0).empty()));
    }
    bool moves_until_made(bool put) {
        bool all = true;
        for (uint64_t i = 0; i < kUntilMade; ++i) {
            all = all && moves(put);
        }
        return all;
    }
    /** This process resets its GPU and allocates its buffer anew. */
    bool reset_here() {
        local->forget();
        local.reset();
        const auto reset = cuda_function<CUresult (*)(CUdevice)>("cuDevicePrimaryCtxReset_v2");
        if (reset(0) != CUDA_SUCCESS || enter_primary_context(0) == nullptr) {
            return false;
        }
        local.emplace(kPool, kBytes);
        return true;
    }
    /** Kernels that the sender has launched: one for each chunk within its GPU. */
    unsigned long launches(bool put) {
        return put ? calls("cuLaunchKernel") : peer.calls("cuLaunchKernel");
    }
    unsigned long handles_opened(bool put) {
        return put ? peer.calls("cuIpcOpenMemHandle") : calls("cuIpcOpenMemHandle");
    }

    std::optional<Buffer> local;
    RemoteMemory remote = {};
    uint64_t seed = 0;
};

int through_gpu_ring(bool put) {
    UnmappedPair pair(1);
    CHECK(pair.start());
    const LogCapture log;
    CHECK(pair.launches(put) == 0);
    CHECK(pair.moves_until_made(put));
    CHECK(pair.handles_opened(put) == 1);
    CHECK(log.count("carry long messages to process") == (put ? 1u : 0u));
    for (int i = 0; i < 3; ++i) {
        const unsigned long before = pair.launches(put);
        CHECK(pair.moves(put));
        CHECK(pair.launches(put) == before + 1);
    }
    const unsigned long before = pair.launches(put);
    CHECK(pair.moves(put, kShort));
    CHECK(pair.launches(put) == before);
    CHECK(pair.handles_opened(put) == 1);
    return pair.peer.finish();
}

FreshProcess gets("gets-through-gpu-ring", [] { return through_gpu_ring(false); });
FreshProcess puts("puts-through-gpu-ring", [] { return through_gpu_ring(true); });

TEST(PortGpuUnmapped, LongTransfersTakeTheGpuRing) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(gets.run(), 0);
    EXPECT_EQ(puts.run(), 0);
}

/** Within one GPU the copies of two processes wait for each other. */
FreshProcess on_one_gpu("unmapped-on-one-gpu", [] {
    UnmappedPair pair(0);
    CHECK(pair.start());
    for (const bool put : {false, true}) {
        CHECK(pair.moves_until_made(put));
        CHECK(pair.moves(put) && pair.launches(put) == 0 && pair.handles_opened(put) == 0);
    }
    return pair.peer.finish();
});

TEST(PortGpuUnmapped, OnOneGpuThereIsNoGpuRing) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(on_one_gpu.run(), 0);
}

/** The driver of one side refuses; `put` makes this process the sender. `freed`: how often it frees
 * what it has allocated. */
int run_refused(bool put, const char *here, const char *there, unsigned long freed) {
    UnmappedPair pair(1);
    CHECK(pair.start());
    set_simulation("SIMCUDA_FAIL", here);
    pair.peer.simulate("SIMCUDA_FAIL", there);
    const unsigned long allocated = calls("cuMemAlloc");
    const unsigned long before = calls("cuMemFree");
    for (int i = 0; i < 2; ++i) {
        CHECK(pair.moves_until_made(put));
    }
    CHECK(pair.launches(put) == 0);
    CHECK(!put || calls("cuMemAlloc") == allocated + 1);
    CHECK(await_background_calls("cuMemFree", before + freed));
    return pair.peer.finish();
}

FreshProcess no_memory("no-memory-for-gpu-ring",
                       [] { return run_refused(true, "cuMemAlloc:1:2", "", 0); });
FreshProcess no_handle("no-handle-of-gpu-ring",
                       [] { return run_refused(true, "cuIpcGetMemHandle:1:1", "", 1); });
FreshProcess not_opened("gpu-ring-not-opened",
                        [] { return run_refused(true, "", "cuIpcOpenMemHandle:1:1", 1); });
FreshProcess not_opened_here("gpu-ring-not-opened-here",
                             [] { return run_refused(false, "cuIpcOpenMemHandle:1:1", "", 0); });

TEST(PortGpuUnmapped, WhereItIsRefusedHostMemoryGoesOn) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(no_memory.run(), 0);
    EXPECT_EQ(no_handle.run(), 0);
    EXPECT_EQ(not_opened.run(), 0);
    EXPECT_EQ(not_opened_here.run(), 0);
}

/** The program resets its GPU and goes on with other memory: as receiver (get) and as sender. */
int run_reset(bool put) {
    UnmappedPair pair(1);
    CHECK(pair.start());
    CHECK(pair.moves_until_made(put) && pair.launches(put) != 0);
    CHECK(pair.reset_here() && load_kernels(current_context()));
    const unsigned long before = pair.launches(put);
    for (int i = 0; i < 3; ++i) {
        CHECK(pair.moves(put));
    }
    CHECK(pair.launches(put) == before);
    return pair.peer.finish();
}

/** What the peer puts arrives before this process keeps house. */
FreshProcess put_after_reset("gpu-ring-put-after-reset", [] {
    UnmappedPair pair(1);
    CHECK(pair.start());
    {
        const Registration registration(pair.local->data(), kBytes);
        for (uint64_t i = 0; i < kUntilMade; ++i) {
            pair.peer.fill(i);
            CHECK(pair.peer.put(registration.named(), kBytes) == Status::ok);
        }
        CHECK(pair.launches(false) != 0);
    }
    CHECK(pair.reset_here());
    const Registration registration(pair.local->data(), kBytes);
    CHECK(pair.peer.put(registration.named(), kBytes) == Status::ok);
    CHECK(pair.local->check(0, kBytes, kUntilMade - 1, 0).empty());
    return pair.peer.finish();
});

FreshProcess receiver_reset("gpu-ring-receiver-resets", [] { return run_reset(false); });
FreshProcess sender_reset("gpu-ring-sender-resets", [] { return run_reset(true); });

TEST(PortGpuUnmapped, ItEndsWithItsContext) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(receiver_reset.run(), 0);
    EXPECT_EQ(sender_reset.run(), 0);
    EXPECT_EQ(put_after_reset.run(), 0);
}

/** Refused while a copy into it goes through the host, piece by piece, because a kernel fills the
 * GPU. The program has memory in its place then. */
FreshProcess refused_late("gpu-ring-refused-while-filled", [] {
    UnmappedPair pair(1);
    CHECK(pair.start());
    CHECK(pair.moves_until_made(true) && pair.launches(true) != 0);
    FullGpu gpu;
    pair.local->fill(1000);
    gpu.fill();
    Connection &connection = pair.peer.connection();
    Outcome outcome;
    const unsigned long launched = calls("cuLaunchKernel");
    CHECK(connection.put(pair.local->data(), kBytes, pair.remote, nullptr, outcome.completion()) ==
          Status::in_progress);
    CHECK(pair.await_calls("cuLaunchKernel", launched + 1));
    // Words of the cancellation, and the first piece.
    CHECK(pair.await_calls("cuMemcpyAsync", calls("cuMemcpyAsync") + 3));
    gpu.open();
    const unsigned long freed = calls("cuMemFree");
    connection.ring_sender().receive_gpu_ring_answer(GpuRingAnswer{0});
    // So long that the background thread frees what it may.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    while (std::chrono::steady_clock::now() < end) {
        std::this_thread::yield();
    }
    CHECK(calls("cuMemFree") == freed && !outcome.done());
    CHECK(progress_until({&*pair.port}, [&] { return outcome.done(); }));
    CHECK(await_background_calls("cuMemFree", freed + 1));
    return pair.peer.finish();
});

TEST(PortGpuUnmapped, WhatIsRefusedStaysUntilCopiesHaveEnded) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(refused_late.run(), 0);
}

/** Another process uses the sender's GPU. */
FreshProcess shared_gpu("gpu-ring-on-a-shared-gpu", [] {
    UnmappedPair pair(1);
    Child other([](const Channel &channel) {
        int word = 0;
        if (!channel.receive(&word) || enter_primary_context(0) == nullptr) {
            return 1;
        }
        GpuSharing::instance().use(0);
        channel.send(word);
        return channel.receive(&word) ? 0 : 2;
    });
    CHECK(pair.start());
    int word = 1;
    other.channel().send(word);
    CHECK(other.channel().receive(&word));
    GpuSharing::instance().use(0);
    const unsigned long allocated = calls("cuMemAlloc");
    CHECK(pair.moves_until_made(true));
    CHECK(pair.launches(true) == 0 && calls("cuMemAlloc") == allocated);
    other.channel().send(word);
    return pair.peer.finish() + other.reap();
});

TEST(PortGpuUnmapped, OnASharedGpuThereIsNoGpuRing) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(shared_gpu.run(), 0);
}

/** The peer dies with chunks under way; another one follows. */
FreshProcess killed("gpu-ring-peer-dies", [] {
    Peer second(kPort, 1);
    UnmappedPair pair(1);
    CHECK(pair.start());
    CHECK(pair.moves_until_made(true) && pair.launches(true) != 0);
    pair.peer.simulate("SIMCUDA_DELAY_US", "20000");
    Outcome outcome;
    CHECK(pair.peer.connection().put(pair.local->data(), kBytes, pair.remote, nullptr,
                                     outcome.completion()) == Status::in_progress);
    pair.peer.kill();
    CHECK(progress_until({&*pair.port}, [&] { return outcome.done(); }));
    CHECK(outcome.status == Status::peer_failed);
    CHECK(second.connect(*pair.port) && second.load_kernels());
    const RemoteMemory remote = second.allocate(kBytes, kPool);
    for (uint64_t seed = 1000; seed < 1000 + kUntilMade; ++seed) {
        pair.local->fill(seed);
        CHECK(await_put(*pair.port, second.connection(), pair.local->data(), kBytes, remote) ==
              Status::ok);
        CHECK(second.holds(seed));
    }
    return second.finish();
});

TEST(PortGpuUnmapped, APeerThatDiesHoldsUpNobody) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(killed.run(), 0);
}

}  // namespace
}  // namespace gpushm
