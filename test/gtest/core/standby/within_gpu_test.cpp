// SPDX-License-Identifier: BSD-3-Clause
// Copies within a GPU (CancellableCopies): right bytes, beside kernels that fill the GPU as well,
// and nothing afterwards.
#include "core/kernels/cancellable_copy_kernel.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"
#include "test/gtest/core/full_gpu.hpp"
#include "test/gtest/core/gpu_support.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

class WithinGpu : public GpuTest {
protected:
    void SetUp() override {
        if (!KernelCodes::possible()) {
            GTEST_SKIP() << "built without a CUDA compiler, or the driver has no kernels";
        }
    }

    static Status start(CopyEngine &engine, const Buffer &to, size_t target, const Buffer &from,
                        size_t origin, size_t length, CopyTicket *ticket) {
        const MemoryInfo info = query_memory(to.data());
        return engine.start(
            {to.data() + target, from.data() + origin, length, info, CopyDirection::to_gpu},
            ticket);
    }
    static Status copy(CopyEngine &engine, const Buffer &to, size_t target, const Buffer &from,
                       size_t origin, size_t length) {
        CopyTicket ticket;
        const Status status = start(engine, to, target, from, origin, length, &ticket);
        return status == Status::in_progress ? engine.wait(&ticket) : status;
    }
};

/** What a kernel would get wrong: bytes before and behind words, words that are put together of
 * two, several blocks and rounds. */
TEST_F(WithinGpu, MovesExactlyTheBytesThatItIsTold) {
    constexpr size_t kOffsets = 33;
    std::mt19937_64 random(4712);
    std::vector<size_t> lengths;
    for (size_t length = 1; length < 1400; ++length) {
        lengths.push_back(1 + length % 70);
    }
    for (int i = 0; i < 100; ++i) {
        lengths.push_back(1 + random() % (200u << 10));
    }
    lengths.insert(lengths.end(), {32768, 32768, 32769, 65535, 65536, (40u << 20) - 1, 40u << 20});
    CopyEngine engine;
    uint64_t seed = 0;
    for (const size_t length : lengths) {
        Buffer source(MemoryKind::device, length + kOffsets);
        Buffer destination(MemoryKind::device, length + kOffsets);
        const size_t target = random() % kOffsets;
        const size_t origin = seed % 8 == 0 ? target : random() % kOffsets;
        source.fill(++seed);
        destination.fill(++seed);
        std::vector<unsigned char> expected = read(destination, length + kOffsets);
        const std::vector<unsigned char> sent = read(source, length + kOffsets);
        std::copy_n(sent.begin() + static_cast<ptrdiff_t>(origin), length,
                    expected.begin() + static_cast<ptrdiff_t>(target));
        ASSERT_EQ(copy(engine, destination, target, source, origin, length), Status::ok);
        ASSERT_TRUE(read(destination, length + kOffsets) == expected)
            << length << " bytes from offset " << origin << " to " << target;
    }
}

/** Kernels of one do not reach the memory of the other. */
TEST_F(WithinGpu, CopiesBetweenContextsAreTheDrivers) {
    constexpr size_t kBytes = 100000;
    CUcontext other = make_context();
    ASSERT_EQ(cuda_.ctx_push_current(other), CUDA_SUCCESS);
    KernelCodes::instance().load(other, cuda_.context_id(other));
    Buffer there(MemoryKind::device, kBytes);
    cuda_.ctx_pop_current(&other);
    Buffer here(MemoryKind::device, kBytes);
    CopyEngine engine;
    if (simulated()) {
        reset_calls();
    }
    for (const auto &[to, from] : {std::pair(&here, &there), std::pair(&there, &here)}) {
        from->fill(1);
        to->fill(2);
        EXPECT_EQ(copy(engine, *to, 0, *from, 0, kBytes), Status::ok);
        EXPECT_EQ(to->check(0, kBytes, 1, 2), "");
    }
    if (simulated()) {
        EXPECT_EQ(calls("cuLaunchKernel"), 0u);
    }
    there.forget();
    destroy_context(other);
}

TEST_F(WithinGpu, AKernelThatFillsTheGpuHoldsNothingUp) {
    constexpr size_t kMax = 3u << 20;
    Buffer source(MemoryKind::device, kMax + 64);
    Buffer destination(MemoryKind::device, kMax + 64);
    CopyEngine engine;
    source.fill(1);
    destination.fill(2);
    FullGpu gpu;
    gpu.fill();
    for (const size_t length : {size_t{8}, size_t{4099}, kMax, size_t{65536}}) {
        for (const bool sync : {false, true}) {
            const MemoryInfo info = query_memory(destination.data());
            const Status status = sync ? engine.copy({destination.data() + 7, source.data(), length,
                                                      info, CopyDirection::to_gpu})
                                       : copy(engine, destination, 7, source, 0, length);
            EXPECT_EQ(status, Status::ok);
            EXPECT_TRUE(gpu.is_full());
        }
    }
    // What was cancelled is not done later.
    EXPECT_EQ(destination.check(7, kMax, 1, 2), "");
    destination.fill(3);
    gpu.open();
    EXPECT_EQ(cuda_function<CUresult (*)()>("cuCtxSynchronize")(), CUDA_SUCCESS);
    EXPECT_EQ(destination.check(0, 0, 1, 3), "");
    // The kernel works again.
    if (simulated()) {
        reset_calls();
    }
    ASSERT_EQ(copy(engine, destination, 5, source, 0, 3000), Status::ok);
    EXPECT_EQ(destination.check(5, 3000, 1, 3), "");
    if (simulated()) {
        EXPECT_EQ(calls("cuLaunchKernel"), 1u);
    }
}

class WithinGpuTogether : public WithinGpu, public testing::WithParamInterface<size_t> {};

/** Kernels that end when copies are just being cancelled: what began is not made twice, nor not at
 * all. */
TEST_P(WithinGpuTogether, CopiesThatBeginWhileTheyAreCancelnAreMadeOnce) {
    const size_t bytes = GetParam();
    constexpr int kCopies = 8;
    constexpr int kLate = 3;
    const int rounds = (simulated() ? 60 : 300) / (bytes > (1u << 20) ? 5 : 1);
    std::mt19937_64 random(4713);
    CopyEngine engine;
    Buffer source(MemoryKind::device, bytes);
    std::vector<std::unique_ptr<Buffer>> destinations;
    for (int i = 0; i < kCopies; ++i) {
        destinations.push_back(std::make_unique<Buffer>(MemoryKind::device, bytes));
    }
    for (int round = 0; round < rounds; ++round) {
        const auto seed = static_cast<uint64_t>(3 * round);
        source.fill(seed);
        for (auto &destination : destinations) {
            destination->fill(seed + 1);
        }
        {
            FullGpu gpu;
            gpu.fill();
            std::vector<CopyTicket> tickets(kCopies);
            auto start_next = [&, next = size_t{0}]() mutable {
                ASSERT_EQ(
                    start(engine, *destinations[next], 1, source, 3, bytes - 4, &tickets[next]),
                    Status::in_progress);
                ++next;
            };
            const auto begin = std::chrono::steady_clock::now();
            for (int i = 0; i < kCopies - kLate; ++i) {
                start_next();
            }
            const auto opens = begin + std::chrono::microseconds(4900 + random() % 400);
            std::thread other([&] {
                cuda_.ctx_push_current(context_);
                while (std::chrono::steady_clock::now() < opens) {
                }
                gpu.open();
            });
            const auto late = begin + std::chrono::microseconds(4900 + random() % 400);
            while (std::chrono::steady_clock::now() < late) {
                engine.progress();
            }
            for (int i = 0; i < kLate; ++i) {
                start_next();
            }
            for (CopyTicket &ticket : tickets) {
                EXPECT_EQ(engine.wait(&ticket), Status::ok);
            }
            other.join();
        }
        const std::vector<unsigned char> sent = read(source, bytes);
        for (auto &destination : destinations) {
            const std::vector<unsigned char> got = read(*destination, bytes);
            ASSERT_TRUE(std::equal(sent.begin() + 3, sent.end() - 1, got.begin() + 1))
                << "round " << round;
            destination->fill(seed + 2);
        }
        EXPECT_EQ(cuda_function<CUresult (*)()>("cuCtxSynchronize")(), CUDA_SUCCESS);
        for (auto &destination : destinations) {
            ASSERT_EQ(destination->check(0, 0, seed, seed + 2), "") << "round " << round;
        }
    }
}

// Of a few blocks, and of many.
INSTANTIATE_TEST_SUITE_P(Bytes, WithinGpuTogether, testing::Values(100000, (1u << 20) + 100000));

TEST_F(WithinGpu, AnEngineEndsBesideAKernelThatFillsTheGpu) {
    Buffer source(MemoryKind::device, 4096);
    Buffer destination(MemoryKind::device, 4096);
    source.fill(1);
    destination.fill(2);
    auto engine = std::make_unique<CopyEngine>();
    FullGpu gpu;
    gpu.fill();
    ASSERT_EQ(copy(*engine, destination, 0, source, 0, 4096), Status::ok);
    CopyTicket ticket;
    ASSERT_EQ(start(*engine, destination, 0, source, 0, 100, &ticket), Status::in_progress);
    engine.reset();
    EXPECT_TRUE(gpu.is_full());
}

/** The kernel of the copy that was cancelled is in its stream still. */
TEST_F(WithinGpu, ACancelledCopyReadsNothingThatMayBeUnmapped) {
    constexpr size_t kBytes = 1u << 20;
    if (!Buffer::has_exportable()) {
        GTEST_SKIP() << "no virtual memory management";
    }
    CopyEngine engine;
    Buffer destination(MemoryKind::device, kBytes);
    std::optional<Buffer> source(std::in_place, Buffer::Allocator::exportable, kBytes);
    source->fill(1);
    destination.fill(2);
    const MemoryInfo info = query_memory(source->data());
    ASSERT_TRUE(engine.can_copy_within_gpu(info, source->data(), kBytes));
    MemoryInfo gpu_side = info;
    gpu_side.context = context_;
    CopyJob job = {destination.data(), source->data(), kBytes, gpu_side, CopyDirection::to_gpu};
    job.in_reach = true;
    job.other_side = OtherSide::same_gpu;
    job.source_may_be_unmapped = true;
    for (const bool is_full : {false, true}) {
        FullGpu gpu;
        if (is_full) {
            gpu.fill();
        }
        CopyTicket ticket;
        ASSERT_EQ(engine.start(job, &ticket), Status::in_progress);
        EXPECT_EQ(engine.wait(&ticket), Status::ok);
        if (is_full) {
            EXPECT_TRUE(gpu.is_full());
            source.reset();
        }
        gpu.open();
        EXPECT_EQ(destination.check(0, kBytes, 1, 2), "");
        destination.fill(2);
    }
    EXPECT_EQ(cuda_.stream_synchronize(nullptr), CUDA_SUCCESS);
}

/** Pools and managed memory, whose context the driver does not name. */
TEST_F(WithinGpu, KnowsWhichMemoryAKernelCanCopy) {
    constexpr size_t kBytes = 3u << 20;
    CopyEngine engine;
    const auto can = [&](Buffer::Allocator allocator) {
        const Buffer buffer(allocator, kBytes);
        return engine.can_copy_within_gpu(query_memory(buffer.data()), buffer.data(), kBytes);
    };
    EXPECT_TRUE(can(Buffer::Allocator::device));
    EXPECT_TRUE(can(Buffer::Allocator::managed));
    EXPECT_TRUE(can(Buffer::Allocator::pool));
    const Buffer buffer(Buffer::Allocator::pool, kBytes);
    EXPECT_FALSE(
        engine.can_copy_within_gpu(query_memory(buffer.data()), buffer.data(), 2 * kBytes));
}

/** Not all of its blocks find a place at a time. */
TEST_F(WithinGpu, ACopyThatHasBegunEndsBesideAKernelThatComesThen) {
    const size_t bytes = simulated() ? 1u << 20 : 512u << 20;
    Buffer source(MemoryKind::device, bytes);
    Buffer destination(MemoryKind::device, bytes);
    CopyEngine engine;
    source.fill(1);
    for (uint64_t round = 2; round < 6; ++round) {
        destination.fill(round);
        FullGpu gpu;
        CopyTicket ticket;
        ASSERT_EQ(start(engine, destination, 0, source, 0, bytes, &ticket), Status::in_progress);
        gpu.fill();
        EXPECT_EQ(engine.wait(&ticket), Status::ok);
        EXPECT_TRUE(gpu.is_full());
        EXPECT_EQ(destination.check(0, bytes, 1, round), "");
    }
}

/** More streams than there are words for. */
TEST_F(WithinGpu, ManyEngines) {
    Buffer source(MemoryKind::device, 4096);
    Buffer destination(MemoryKind::device, 4096);
    std::vector<std::unique_ptr<CopyEngine>> engines;
    for (uint64_t i = 0; i < kCancellations + 10; ++i) {
        engines.push_back(std::make_unique<CopyEngine>());
        source.fill(2 * i);
        destination.fill(2 * i + 1);
        ASSERT_EQ(copy(*engines.back(), destination, 9, source, 0, 3000), Status::ok);
        ASSERT_EQ(destination.check(9, 3000, 2 * i, 2 * i + 1), "") << "engine " << i;
    }
    engines.clear();
    if (simulated()) {
        reset_calls();
    }
    CopyEngine engine;  // with the words of one of them
    ASSERT_EQ(copy(engine, destination, 0, source, 0, 4096), Status::ok);
    if (simulated()) {
        EXPECT_EQ(calls("cuLaunchKernel"), 1u);
    }
}

/** Some wait for others, then go by kernels as those, or beside a kernel that fills the GPU through
 * host memory. */
TEST_F(WithinGpu, MoreCopiesThanMayBeUnderWayWait) {
    constexpr size_t kCopies = 700;
    constexpr size_t kBytes = 96;
    Buffer source(MemoryKind::device, kCopies * kBytes);
    Buffer destination(MemoryKind::device, kCopies * kBytes);
    source.fill(1);
    for (const bool full : {false, true}) {
        destination.fill(2);
        CopyEngine engine;
        FullGpu gpu;
        if (full) {
            gpu.fill();
        } else if (simulated()) {
            set_simulation("SIMCUDA_DELAY_US", "100");
        }
        std::vector<CopyTicket> tickets(kCopies);
        for (size_t i = 0; i < kCopies; ++i) {
            ASSERT_EQ(
                start(engine, destination, i * kBytes, source, i * kBytes, kBytes, &tickets[i]),
                Status::in_progress);
        }
        const Deadline deadline;
        while (!engine.idle() && !deadline.passed()) {
            engine.progress();
        }
        for (CopyTicket &ticket : tickets) {
            ASSERT_EQ(engine.poll(&ticket), Status::ok);
        }
        EXPECT_EQ(destination.check(0, kCopies * kBytes, 1, 2), "");
    }
}

/** Its kernel may begin when another engine copies: both would take what it says for theirs. */
TEST_F(WithinGpu, WordsOfACopyWhoseEndIsNotKnownAreNotUsedAgain) {
    SKIP_UNLESS_SIMULATED();
    const LogCapture log;
    const std::shared_ptr<const KernelCode> code =
        KernelCodes::instance().find(context_, cuda_.context_id(context_));
    const auto next_words = [&] {
        const CancellationSlot slot = code->take_cancellation().value();
        code->give_back_cancellation(slot);
        return slot.address;
    };
    Buffer source(MemoryKind::device, 4096);
    Buffer destination(MemoryKind::device, 4096);
    FullGpu gpu;
    const CUdeviceptr words = next_words();
    for (const bool is_known : {true, false}) {
        auto engine = std::make_unique<CopyEngine>();
        CopyTicket ticket;
        if (!is_known) {
            gpu.fill();
        }
        ASSERT_EQ(start(*engine, destination, 0, source, 0, 4096, &ticket), Status::in_progress);
        set_simulation(
            "SIMCUDA_FAIL",
            is_known ? "" : "cuEventQuery:1:700,cuStreamQuery:1:700,cuStreamQuery:1:700");
        EXPECT_EQ(engine->wait(&ticket), is_known ? Status::ok : Status::gpu_error);
        set_simulation("SIMCUDA_FAIL", "");
        if (is_known) {  // the stream may say later than the event that the kernel has ended
            EXPECT_EQ(cuda_function<CUresult (*)()>("cuCtxSynchronize")(), CUDA_SUCCESS);
        }
        engine.reset();
        EXPECT_EQ(next_words() == words, is_known);
    }
}

/** Copies through host memory may still use it, so nobody else gets it. In a process of its own,
 * which loses it. */
FreshProcess staging_left("staging-left", [] {
    const CUcontext context = enter_primary_context(0);
    CHECK(context != nullptr);
    CHECK(load_kernels(context));
    constexpr size_t kBytes = 300000;
    Buffer source(MemoryKind::device, kBytes);
    Buffer destination(MemoryKind::device, kBytes);
    size_t blocks = PinnedBufferPool::kBlocks;
    for (const auto &[rule, status, left] : {
             std::tuple("", Status::ok, size_t{0}),
             // A piece cannot be copied on.
             std::tuple("cuMemcpyAsync:6:2,cuMemcpyAsync:7:2,cuStreamQuery:1:700,"
                        "cuStreamSynchronize:1:700",
                        Status::gpu_error, size_t{1}),
             // The words may have been read.
             std::tuple("cuEventRecord:2:2,cuStreamQuery:1:700,cuStreamSynchronize:1:700",
                        Status::ok, size_t{1}),
         }) {
        CopyEngine engine;
        FullGpu gpu;
        gpu.fill();
        set_simulation("SIMCUDA_FAIL", rule);
        const MemoryInfo info = query_memory(destination.data());
        CHECK(engine.copy({destination.data(), source.data(), kBytes, info,
                           CopyDirection::to_gpu}) == status);
        set_simulation("SIMCUDA_FAIL", "");
        blocks -= left;
        CHECK(count_free_pinned_buffer_pool() == blocks);
    }
    FullGpu gpu;
    gpu.fill();
    auto engine = std::make_unique<CopyEngine>();
    const MemoryInfo info = query_memory(destination.data());
    CopyTicket ticket;
    CHECK(engine->start({destination.data(), source.data(), kBytes, info, CopyDirection::to_gpu},
                        &ticket) == Status::in_progress);
    while (count_free_pinned_buffer_pool() == blocks) {
        engine->progress();
    }
    set_simulation("SIMCUDA_FAIL", "cuStreamQuery:1:700,cuStreamSynchronize:1:700");
    engine.reset();
    CHECK(count_free_pinned_buffer_pool() == blocks - 1);
    return 0;
});

TEST_F(WithinGpu, HostMemoryOfCopiesWhoseEndIsNotKnownStaysAsItIs) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(staging_left.run(), 0);
}

/** In a process of its own, where it is not tried again. */
FreshProcess nothing_page_locked("within-gpu-nothing-page-locked", [] {
    const CUcontext context = enter_primary_context(0);
    CHECK(context != nullptr);
    CHECK(load_kernels(context));
    Buffer source(MemoryKind::device, 300000);
    Buffer destination(MemoryKind::device, 300000);
    source.fill(1);
    const LogCapture log;
    set_simulation("SIMCUDA_FAIL", "cuMemHostRegister:1:2");
    FullGpu gpu;
    gpu.fill();
    CopyEngine engine;
    for (uint64_t i = 2; i < 4; ++i) {
        destination.fill(i);
        const MemoryInfo info = query_memory(destination.data());
        CHECK(engine.copy({destination.data(), source.data(), 300000, info,
                           CopyDirection::to_gpu}) == Status::ok);
        CHECK(destination.check(0, 300000, 1, i).empty());
    }
    CHECK(log.count("cannot page-lock") == 1);
    return 0;
});

TEST_F(WithinGpu, CopiesAllTheSameWhenNothingCanBePageLocked) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(nothing_page_locked.run(), 0);
}

struct WithinGpuFailure {
    const char *calls;  // SIMCUDA_FAIL
    bool full;          // beside a kernel that fills the GPU
    Status status;
};

class WithinGpuFailures : public WithinGpu, public testing::WithParamInterface<WithinGpuFailure> {};

TEST_P(WithinGpuFailures, AreTheCopysOrNobodys) {
    SKIP_UNLESS_SIMULATED();
    const LogCapture log;
    Buffer source(MemoryKind::device, 300000);
    Buffer destination(MemoryKind::device, 300000);
    source.fill(1);
    destination.fill(2);
    CopyEngine engine;
    {
        FullGpu gpu;
        if (GetParam().full) {
            gpu.fill();
        }
        set_simulation("SIMCUDA_FAIL", GetParam().calls);
        EXPECT_EQ(copy(engine, destination, 0, source, 0, 300000), GetParam().status);
        set_simulation("SIMCUDA_FAIL", "");
    }
    if (GetParam().status == Status::ok) {
        EXPECT_EQ(destination.check(0, 300000, 1, 2), "");
    } else {
        EXPECT_EQ(log.count("failed"), 1u);
    }
    destination.fill(3);
    EXPECT_EQ(copy(engine, destination, 0, source, 0, 300000), Status::ok);
    EXPECT_EQ(destination.check(0, 300000, 1, 3), "");
}

INSTANTIATE_TEST_SUITE_P(
    Calls, WithinGpuFailures,
    testing::Values(
        WithinGpuFailure{"cuLaunchKernel:1:2", false, Status::ok},
        WithinGpuFailure{"cuStreamCreateWithPriority:1:2", false, Status::ok},
        WithinGpuFailure{"cuEventCreate:1:2", false, Status::ok},
        WithinGpuFailure{"cuEventRecord:1:2", false, Status::ok},
        WithinGpuFailure{"cuEventQuery:1:2", false, Status::ok},
        WithinGpuFailure{"cuEventRecord:1:2", true, Status::ok},
        WithinGpuFailure{"cuEventRecord:1:2,cuEventRecord:1:2", true, Status::ok},
        WithinGpuFailure{"cuEventQuery:1:2", true, Status::ok},
        WithinGpuFailure{"cuEventQuery:1:2,cuStreamQuery:1:2", true, Status::ok},
        // The words are read, written, read again; then pieces go to and fro.
        WithinGpuFailure{"cuMemcpyAsync:1:2", true, Status::ok},
        WithinGpuFailure{"cuMemcpyAsync:2:2", true, Status::ok},
        WithinGpuFailure{"cuMemcpyAsync:3:2", true, Status::ok},
        WithinGpuFailure{"cuMemcpyAsync:3:2,cuMemcpyAsync:4:2,cuMemcpyAsync:5:2,cuMemcpyAsync:6:2",
                         true, Status::ok},  // given up, and tried again
        WithinGpuFailure{"cuMemcpyAsync:4:2", true, Status::ok},
        WithinGpuFailure{"cuMemcpyAsync:5:2", true, Status::ok},
        WithinGpuFailure{"cuMemcpyAsync:8:2", true, Status::ok},
        WithinGpuFailure{"cuMemcpyAsync:5:2,cuMemcpyAsync:6:2", true, Status::gpu_error},
        WithinGpuFailure{"cuEventCreate:2:2", true, Status::ok},
        WithinGpuFailure{"cuEventRecord:2:2", true, Status::ok}),
    [](const auto &info) { return std::to_string(info.index); });

}  // namespace
}  // namespace gpushm
