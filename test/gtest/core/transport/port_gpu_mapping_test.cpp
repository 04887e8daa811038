// SPDX-License-Identifier: BSD-3-Clause
// GPU memory of another process by one copy: when the way changes, that the data stays right, and
// what a message costs then.
#include "test/gtest/core/transport/port_gpu_peer.hpp"

#include "core/copy/copy_any.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/pinning/host_registration_cache.hpp"
#include "core/standby/gpu_claims.hpp"
#include "core/standby/gpu_sharing.hpp"

#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 4096;
constexpr uint64_t kManyMessages = 50;  // the first of them go through the ring

/** Of one message of this process. `context_calls`: cuCtxGetId, for the copy and for a mapping
 * that ends with its context. */
int expect_calls_of_one_copy(unsigned long context_calls) {
    const unsigned long polls = calls("cuEventQuery");
    CHECK(calls("cuPointerGetAttributes") == 1);
    CHECK(calls("cuMemcpyAsync") == 1 && calls("cuEventRecord") == 1);
    CHECK(calls("cuCtxGetId") == context_calls);
    // Around the start, and around each poll.
    CHECK(calls("cuThreadExchangeStreamCaptureMode") == capture_mode_calls() * (1 + polls));
    CHECK(calls_of_all() == 3 + context_calls + polls + calls("cuThreadExchangeStreamCaptureMode"));
    return 0;
}

/** And from here to there. */
int put_patterns(Pair &pair, Buffer &local, size_t length, const RemoteMemory &remote,
                 uint64_t first, uint64_t count) {
    for (uint64_t pattern = first; pattern < first + count; ++pattern) {
        local.fill(pattern);
        CHECK(pair.put(local.data(), length, remote) == Status::ok);
        CHECK(pair.peer.holds(pattern));
    }
    return 0;
}

// ---------------------------------------------------------------- two GPUs

FreshProcess pull("pull-from-another-gpu", [] {
    Pair pair(1);
    CHECK(pair.start());
    const RemoteMemory remote = pair.peer.allocate(kBytes);
    Buffer local(MemoryKind::device, kBytes);
    CHECK(get_patterns(pair, local, kBytes, remote, 0, kManyMessages) == 0);
    CHECK(calls("cuIpcOpenMemHandle") == 1);
    CHECK(pair.peer.calls("cuIpcGetMemHandle") == 1);
    // From now on one copy, and the owner does nothing.
    pair.peer.fill(1000);
    pair.peer.reset_calls();
    reset_calls();
    CHECK(pair.get(local.data(), kBytes, remote) == Status::ok);
    CHECK(expect_calls_of_one_copy(2) == 0);
    CHECK(local.check(0, kBytes, 1000, 0).empty());
    CHECK(pair.peer.calls_besides("cuPointerGetAttributes") == 0);  // housekeeping looks at exports
    return pair.peer.finish();
});

TEST(PortGpuMapping, PullFromAnotherGpu) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(pull.run(), 0);
}

FreshProcess push("push-to-another-gpu", [] {
    Pair pair(1);
    CHECK(pair.start());
    const RemoteMemory remote = pair.peer.allocate(kBytes);
    Buffer local(MemoryKind::device, kBytes);
    CHECK(put_patterns(pair, local, kBytes, remote, 0, kManyMessages) == 0);
    CHECK(calls("cuIpcOpenMemHandle") == 1);
    local.fill(1000);
    pair.peer.reset_calls();
    reset_calls();
    CHECK(pair.put(local.data(), kBytes, remote) == Status::ok);
    CHECK(expect_calls_of_one_copy(2) == 0);
    CHECK(pair.peer.calls_besides("cuPointerGetAttributes") == 0);  // housekeeping looks at exports
    CHECK(pair.peer.holds(1000));
    return pair.peer.finish();
});

TEST(PortGpuMapping, PushToAnotherGpu) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(push.run(), 0);
}

/** Both pull; lengths and places vary, with fresh bytes each time. */
FreshProcess both("both-directions", [] {
    constexpr size_t kLong = 2 << 20;
    Pair pair(1);
    CHECK(pair.start());
    const RemoteMemory remote = pair.peer.allocate(kLong);
    Buffer source(MemoryKind::device, kLong);
    Buffer target(MemoryKind::device, kLong);
    const Registration registration(source.data(), kLong);
    Random random(3);
    for (uint64_t i = 0; i < 50; ++i) {
        const size_t length =
            random.below(2) != 0 ? 1 + random.below(200000) : kLong - random.below(100000);
        const size_t from = random.below(kLong - length + 1);
        const size_t to = random.below(kLong - length + 1);
        pair.peer.fill(i);
        target.fill(1000 + i);
        RemoteMemory part = remote;
        part.address += from;
        CHECK(pair.get(target.data() + to, length, part) == Status::ok);
        std::vector<unsigned char> expected(kLong);
        std::vector<unsigned char> pattern(kLong);
        fill_pattern(expected.data(), kLong, 1000 + i);
        fill_pattern(pattern.data(), kLong, i);
        memcpy(expected.data() + to, pattern.data() + from, length);
        std::vector<unsigned char> got(kLong);
        CHECK(copy_any(got.data(), target.data(), kLong) == Status::ok && got == expected);
        source.fill(2000 + i);
        CHECK(pair.peer.get(registration.named(), kLong) == Status::ok);
        CHECK(pair.peer.holds(2000 + i));
    }
    CHECK(calls("cuIpcOpenMemHandle") == 1);
    CHECK(pair.peer.calls("cuIpcOpenMemHandle") == 1);
    return pair.peer.finish();
});

TEST(PortGpuMapping, AnyPartInBothDirections) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(both.run(), 0);
}

FreshProcess large("large-message", [] {
    constexpr size_t kLarge = 48 << 20;
    Pair pair(1, {8 << 20, 1 << 20, 256 << 10, 64, true});
    CHECK(pair.start({8 << 20, 1 << 20, 256 << 10, 64, true}));
    const RemoteMemory remote = pair.peer.allocate(kLarge);
    Buffer local(MemoryKind::device, kLarge);
    pair.peer.fill(1);
    CHECK(pair.get(local.data(), kLarge, remote) == Status::ok);
    CHECK(local.check(0, kLarge, 1, 0).empty());
    CHECK(calls("cuIpcOpenMemHandle") == 1);  // it alone was worth it
    pair.peer.fill(2);
    pair.peer.reset_calls();
    CHECK(pair.get(local.data(), kLarge, remote) == Status::ok);
    CHECK(local.check(0, kLarge, 2, 0).empty());
    CHECK(pair.peer.calls("cuMemcpyAsync") == 0);
    return pair.peer.finish();
});

TEST(PortGpuMapping, OneLargeMessageIsWorthAMapping) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(large.run(), 0);
}

// ---------------------------------------------------------------- one GPU

/** Two processes that take turns on a GPU wait for their time slices: one of them does it all. */
FreshProcess one_gpu("one-gpu", [] {
    Pair pair(0);
    CHECK(pair.start());
    const RemoteMemory remote = pair.peer.allocate(kBytes);
    Buffer source(MemoryKind::device, kBytes);
    Buffer target(MemoryKind::device, kBytes);
    const Registration registration(source.data(), kBytes);
    const bool we_copy = pair.precedes();
    for (uint64_t i = 0; i < 60; ++i) {
        if (i == 50) {
            pair.peer.reset_calls();
            reset_calls();
        }
        pair.peer.fill(i);
        CHECK(pair.get(target.data(), kBytes, remote) == Status::ok);
        CHECK(target.check(0, kBytes, i, 0).empty());
        source.fill(1000 + i);
        CHECK(pair.peer.get(registration.named(), kBytes) == Status::ok);
        CHECK(pair.peer.holds(1000 + i));
    }
    CHECK(calls("cuMemcpyAsync") == (we_copy ? 20 : 0));
    CHECK(pair.peer.calls("cuMemcpyAsync") == (we_copy ? 0 : 20));
    return pair.peer.finish();
});

TEST(PortGpuMapping, OnOneGpuOneProcessCopiesForBoth) {
    SKIP_UNLESS_SIMULATED();
    for (int i = 0; i < 6; ++i) {  // it is either
        EXPECT_EQ(one_gpu.run(), 0);
    }
}

/** Keeps the claim of the first GPU until it is killed. Made before CUDA is initialised. */
class Claimant {
public:
    bool claims() const {
        int word = 0;
        child_.channel().send(word);
        return child_.channel().receive(&word);
    }
    void kill() { child_.kill_hard(); }

private:
    Child child_{[](const Channel &channel) {
        int word = 0;
        if (!channel.receive(&word) || enter_primary_context(0) == nullptr ||
            !GpuSharing::instance().may_run_kernels(0) || !GpuClaims::instance().claim(0)) {
            return 1;
        }
        channel.send(word);
        return channel.receive(&word) ? 0 : 2;
    }};
};

/** Whether the process of the pair that does not copy for both makes copies of a transfer of
 * `length` bytes that this process starts; empty: wrong data. */
std::optional<bool> both_copy(Pair &pair, Buffer &local, bool is_put, const RemoteMemory &remote,
                              size_t length) {
    static uint64_t seed = 0;
    const bool we_copy = pair.precedes();
    ++seed;
    local.fill(is_put ? seed : 0);
    pair.peer.fill(is_put ? 0 : seed);
    reset_calls();
    pair.peer.reset_calls();
    const Status status =
        is_put ? pair.put(local.data(), length, remote) : pair.get(local.data(), length, remote);
    const unsigned long copies = we_copy ? pair.peer_copies() : Pair::own_copies();
    const bool is_right =
        status == Status::ok && (is_put || local.check(0, length, seed, 0).empty());
    return is_right ? std::optional<bool>(copies != 0) : std::nullopt;
}

bool becomes(Pair &pair, Buffer &local, bool is_put, const RemoteMemory &remote, size_t length,
             bool both) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::optional<bool> found = !both;
    while (found == !both && std::chrono::steady_clock::now() < end) {
        found = both_copy(pair, local, is_put, remote, length);
    }
    return found == both && both_copy(pair, local, is_put, remote, length) == both;
}

FreshProcess one_gpu_of_three("one-gpu-of-three", [] {
    constexpr size_t kLong = 8 << 20;
    Claimant third;
    Pair pair(0);
    CHECK(pair.start());
    const RemoteMemory remote = pair.peer.allocate(kLong);
    const bool we_copy = pair.precedes();
    Buffer local(MemoryKind::device, kLong);
    CHECK(third.claims());
    // A long one takes longer through the host than it waits for the GPU. It has the buffers
    // mapped.
    CHECK(becomes(pair, local, false, remote, kLong, false));
    for (const bool is_put : {false, true}) {
        if (is_put && !we_copy) {
            continue;  // goes through the ring in any case
        }
        CHECK(becomes(pair, local, is_put, remote, kBytes, true));
    }
    third.kill();
    for (const bool is_put : {false, true}) {
        if (!is_put || we_copy) {
            CHECK(becomes(pair, local, is_put, remote, kBytes, false));
        }
    }
    return pair.finish_by_order();
});

/** Kernels of two processes wait for time slices; copies from and to the host do not. */
TEST(PortGpuMapping, WhereAThirdProcessHasTheGpuBothCopyThroughTheHost) {
    SKIP_UNLESS_SIMULATED();
    run_in_both_orders(one_gpu_of_three);
}

constexpr int kPeerCopies = 42;  // status of a process whose peer copies for both

/** A kernel of ours that was cancelled may still read its source, so it never gets one that may be
 * unmapped before. */
FreshProcess kernel_within_gpu("kernel-within-gpu", [] {
    constexpr size_t kLong = 1 << 20;
    Pair pair(0);
    CHECK(pair.start());
    const CudaDriver &cuda = *CudaDriver::get();
    CUcontext context = nullptr;
    CHECK(cuda.ctx_get_current(&context) == CUDA_SUCCESS);
    CHECK(load_kernels(context));
    const RemoteMemory remote = pair.peer.allocate(kLong);
    if (!pair.precedes()) {
        const int status = pair.peer.finish();
        return status == 0 ? kPeerCopies : status;
    }
    for (const Buffer::Allocator allocator :
         {Buffer::Allocator::device, Buffer::Allocator::exportable}) {
        if (allocator == Buffer::Allocator::exportable && !Buffer::has_exportable()) {
            continue;
        }
        Buffer local(allocator, kLong);
        for (uint64_t i = 0; i < 60; ++i) {
            if (i == 50) {
                reset_calls();
            }
            local.fill(i);
            CHECK(pair.put(local.data(), kLong, remote) == Status::ok);
            CHECK(pair.peer.holds(i));
        }
        CHECK(calls("cuLaunchKernel") == (allocator == Buffer::Allocator::device ? 10 : 0));
    }
    return pair.peer.finish();
});

TEST(PortGpuMapping, AKernelCopiesWithinAGpuWhatStaysMapped) {
    SKIP_UNLESS_SIMULATED();
    if (!KernelCodes::possible()) {
        GTEST_SKIP() << "no kernels";
    }
    int status = kPeerCopies;
    for (int i = 0; i < 40 && status == kPeerCopies; ++i) {
        status = kernel_within_gpu.run();
    }
    EXPECT_EQ(status, 0);
}

// ---------------------------------------------------------------- memory that comes and goes

/** Reallocation brings another buffer to the same address: the old mapping must not serve it. */
FreshProcess reallocated("reallocated", [] {
    constexpr size_t kLong = 1 << 20;
    Pair pair(1);
    CHECK(pair.start());
    Buffer local(MemoryKind::device, kLong);
    for (uint64_t life = 0; life < 4; ++life) {
        const RemoteMemory remote = pair.peer.allocate(kLong);
        CHECK(get_patterns(pair, local, kLong, remote, life * 100, 45) == 0);
        CHECK(calls("cuIpcOpenMemHandle") == life + 1);
        pair.peer.release();
    }
    CHECK(!simulated() || pair.peer.same_addresses() != 0);
    // The owner tells of each when it has nothing else to do.
    CHECK(pair.await_calls("cuIpcCloseMemHandle", 4));
    CHECK(await_background_calls("cuIpcCloseMemHandle", 4));
    return pair.peer.finish();
});

TEST(PortGpuMapping, MemoryThatWasReallocatedIsMappedAnew) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(reallocated.run(), 0);
}

/** The driver does not open small memory as long as a mapping of memory of another size that was
 * there before is open. */
FreshProcess small_reallocated("small-memory-reallocated", [] {
    constexpr size_t kSmall = 64 << 10;
    constexpr uint64_t kMessages = 300;
    Pair pair(1);
    CHECK(pair.start());
    for (uint64_t life = 0; life < 4; ++life) {
        const size_t length = kSmall >> life;
        Buffer local(MemoryKind::device, length);
        const RemoteMemory remote = pair.peer.allocate(length);
        CHECK(get_patterns(pair, local, length, remote, life * 1000, kMessages) == 0);
        pair.peer.fill(life);
        pair.peer.reset_calls();
        CHECK(pair.get(local.data(), length, remote) == Status::ok &&
              local.check(0, length, life, 0).empty());
        CHECK(pair.peer.calls("cuMemcpyAsync") == 0);  // mapped
        pair.peer.release();
    }
    CHECK(!simulated() || pair.peer.same_addresses() == 3);
    // Each time few attempts were in vain.
    CHECK(calls("cuIpcOpenMemHandle") <= 4 + 3 * 8);
    return pair.peer.finish();
});

TEST(PortGpuMapping, SmallMemoryInThePlaceOfMappedMemoryIsMappedSoon) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(small_reallocated.run(), 0);
}

FreshProcess exportable("exportable", [] {
    Pair pair(1);
    CHECK(pair.start());
    if (!Buffer::has_exportable()) {
        printf("skipped: this driver has no virtual memory management\n");
        return pair.peer.finish();
    }
    constexpr size_t kLong = 1 << 20;
    Buffer local(Buffer::Allocator::exportable, kLong);
    size_t descriptors = 0;
    for (uint64_t life = 0; life < 2; ++life) {
        reset_calls();
        const RemoteMemory remote = pair.peer.allocate(kLong, Buffer::Allocator::exportable);
        CHECK(remote.buffer.sharing == BufferKey::Sharing::file_descriptor);
        CHECK(get_patterns(pair, local, kLong, remote, life * 100, 45) == 0);
        CHECK(calls("cuMemImportFromShareableHandle") == 1);
        CHECK(calls("cuIpcOpenMemHandle") == 0);
        reset_calls();
        pair.peer.reset_calls();
        CHECK(pair.get(local.data(), kLong, remote) == Status::ok);
        CHECK(expect_calls_of_one_copy(1) == 0);
        CHECK(pair.peer.calls("cuMemcpyAsync") == 0);
        pair.peer.release();
        CHECK(pair.await_calls("cuMemUnmap", 1));
        CHECK(await_background_calls("cuMemAddressFree", 1) && calls("cuMemUnmap") == 1);
        CHECK(life == 0 || open_descriptors() == descriptors);  // none stays behind
        descriptors = open_descriptors();
    }
    return pair.peer.finish();
});

TEST(PortGpuMapping, VirtualMemoryComesAsADescriptor) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(exportable.run(), 0);
}

/** The importer's device is reset: the mapping is gone with the context, and its address may be
 * used. */
FreshProcess reset_device("importer-resets-its-device", [] {
    const auto reset = cuda_function<CUresult (*)(CUdevice)>("cuDevicePrimaryCtxReset_v2");
    constexpr size_t kLong = 1 << 20;
    Pair pair(1);
    CHECK(pair.start());
    const RemoteMemory remote = pair.peer.allocate(kLong);
    for (uint64_t life = 0; life < 2; ++life) {
        // The second time something else lies where the mapping was.
        Buffer buffers[] = {
            {MemoryKind::device, kLong}, {MemoryKind::device, kLong}, {MemoryKind::device, kLong}};
        for (Buffer &buffer : buffers) {
            buffer.fill(7777);
        }
        CHECK(get_patterns(pair, buffers[0], kLong, remote, 100 * life, 45) == 0);
        CHECK(calls("cuIpcOpenMemHandle") == life + 1);
        if (life == 0) {
            for (Buffer &buffer : buffers) {
                buffer.forget();
            }
            CHECK(reset(0) == CUDA_SUCCESS);
            CHECK(enter_primary_context(0));
        }
    }
    return pair.peer.finish();
});

TEST(PortGpuMapping, ResetOfTheImportersDeviceEndsItsMappings) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(reset_device.run(), 0);
}

// ---------------------------------------------------------------- host memory

FreshProcess pinned_pull("pull-into-page-locked-memory", [] {
    constexpr size_t kLong = 2 << 20;
    Pair pair(1);
    CHECK(pair.start());
    HostRegistrationCache::instance().enable(size_t{1} << 30);
    const RemoteMemory remote = pair.peer.allocate(kLong);
    Buffer pageable(MemoryKind::host, kLong);
    Buffer pinned(MemoryKind::pinned, kLong);
    for (Buffer *local : {&pinned, &pageable}) {
        CHECK(get_patterns(pair, *local, kLong, remote, 0, 12) == 0);
        pair.peer.fill(100);
        reset_calls();
        pair.peer.reset_calls();
        CHECK(pair.get(local->data(), kLong, remote) == Status::ok);
        CHECK(local->check(0, kLong, 100, 0).empty());
        CHECK(calls("cuMemcpyAsync") == 1 && calls("cuMemHostRegister") == 0);
        CHECK(pair.peer.calls("cuMemcpyAsync") == 0);
    }
    return pair.peer.finish();
});

TEST(PortGpuMapping, PullIntoPageLockedMemory) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(pinned_pull.run(), 0);
}

FreshProcess pinned_push("push-from-page-locked-memory", [] {
    constexpr size_t kLong = 2 << 20;
    Pair pair(1);
    CHECK(pair.start());
    HostRegistrationCache::instance().enable(size_t{1} << 30);
    const RemoteMemory remote = pair.peer.allocate(kLong);
    Buffer pageable(MemoryKind::host, kLong);
    Buffer pinned(MemoryKind::pinned, kLong);
    for (Buffer *local : {&pinned, &pageable}) {
        const Registration registration(local->data(), kLong);
        for (const bool asked : {true, false}) {  // the peer's get, our put
            const auto send = [&] {
                return asked ? pair.peer.get(registration.named(), kLong)
                             : pair.put(local->data(), kLong, remote);
            };
            for (uint64_t i = 0; i < 12; ++i) {
                local->fill(i);
                CHECK(send() == Status::ok);
                CHECK(pair.peer.holds(i));
            }
            local->fill(100);
            reset_calls();
            pair.peer.reset_calls();
            CHECK(send() == Status::ok);
            CHECK(calls("cuMemcpyAsync") == 1 && calls("cuMemHostRegister") == 0);
            CHECK(pair.peer.calls("cuMemcpyAsync") == 0);
            CHECK(pair.peer.holds(100));
        }
    }
    return pair.peer.finish();
});

TEST(PortGpuMapping, PushFromPageLockedMemory) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(pinned_push.run(), 0);
}

/** Speculative copies, through the ring, until the buffer is locked and the peer's memory mapped;
 * then one copy. */
FreshProcess push_after_speculative_copies("push-after-speculative-copies", [] {
    constexpr size_t kLong = 64 << 10;
    Pair pair(1);
    CHECK(pair.start());
    HostRegistrationCache::instance().enable(size_t{1} << 30);
    pair.peer.allocate(kLong);
    Buffer local(MemoryKind::host, kLong);
    const Registration registration(local.data(), kLong);
    unsigned speculative_copies = 0;
    bool pushed = false;
    for (uint64_t i = 0; i < 1000 && !pushed; ++i) {
        local.fill(i);
        uint64_t speculative_copy = 0;
        pair.peer.reset_calls();
        CHECK(pair.peer.get_announced(registration.named(), kLong, &speculative_copy) ==
              Status::ok);
        pushed = pair.peer.calls("cuMemcpyAsync") == 0;
        CHECK(pair.peer.holds(i));
        speculative_copies += speculative_copy != 0;
        CHECK(!pushed || speculative_copy != 0);  // the first push, which the request decides
    }
    CHECK(pushed && speculative_copies > 2);
    for (uint64_t i = 0; i < 10; ++i) {
        local.fill(5000 + i);
        uint64_t speculative_copy = 0;
        reset_calls();
        pair.peer.reset_calls();
        CHECK(pair.peer.get_announced(registration.named(), kLong, &speculative_copy) ==
              Status::ok);
        CHECK(speculative_copy == 0);
        CHECK(calls("cuMemcpyAsync") == 1 && pair.peer.calls("cuMemcpyAsync") == 0);
        CHECK(pair.peer.holds(5000 + i));
    }
    return pair.peer.finish();
});

TEST(PortGpuMapping, APushTakesThePlaceOfSpeculativeCopys) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(push_after_speculative_copies.run(), 0);
}

/** Where two CPUs copy, chunks are as quick: only for a GPU is a speculative copy longer than 32
 * KiB. */
FreshProcess speculative_copies_to("speculative-copies-to", [] {
    constexpr size_t kLong = 64 << 10;
    PortConfig config = kMappingPort;
    config.peer_mapping = false;
    config.cma = false;
    Pair pair(1, config);
    CHECK(pair.start(config));
    Buffer local(MemoryKind::host, kLong);
    const Registration registration(local.data(), kLong);
    const auto has_speculative_copy = [&](size_t length) {
        uint64_t number = 0;
        return pair.peer.get_announced(registration.named(), length, &number) == Status::ok &&
               number != 0;
    };
    for (int round = 0; round < 2; ++round) {
        pair.peer.allocate(kLong, Buffer::Allocator::host);
        for (int i = 0; i < 6; ++i) {
            local.fill(i);
            CHECK(has_speculative_copy(kLong / 2) || (round == 0 && i < 3));
            CHECK(!has_speculative_copy(kLong) || (round != 0 && i == 0));
            CHECK(pair.peer.holds(i));
        }
        pair.peer.release();
        pair.peer.allocate(kLong, Buffer::Allocator::device);
        for (int i = 0; i < 6; ++i) {
            local.fill(100 + i);
            CHECK(has_speculative_copy(kLong / 2));
            CHECK(has_speculative_copy(kLong));
            CHECK(pair.peer.holds(100 + i));
        }
        pair.peer.release();
    }
    return pair.peer.finish();
});

TEST(PortGpuMapping, SpeculativeCopysToAGpuMayBeLonger) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(speculative_copies_to.run(), 0);
}

/** Without HostRegistrationCache a pageable buffer goes through the ring, whatever is mapped. */
FreshProcess pageable("pageable-memory", [] {
    constexpr size_t kLong = 1 << 20;
    Pair pair(1);
    CHECK(pair.start());
    const RemoteMemory remote = pair.peer.allocate(kLong);
    Buffer local(MemoryKind::host, kLong);
    for (uint64_t i = 0; i < 40; ++i) {
        pair.peer.fill(i);
        CHECK(pair.get(local.data(), kLong, remote) == Status::ok);
        CHECK(local.check(0, kLong, i, 0).empty());
        CHECK(i > 5 || calls("cuIpcOpenMemHandle") == 0);  // it would be of no use
    }
    CHECK(query_memory(local.data()).kind == MemoryKind::host);
    CHECK(pair.peer.calls("cuMemcpyAsync") >= 40);
    return pair.peer.finish();
});

TEST(PortGpuMapping, PageableMemoryIsNeverLockedUnasked) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(pageable.run(), 0);
}

}  // namespace
}  // namespace gpushm
