// SPDX-License-Identifier: BSD-3-Clause
// CopyEngine and copy_any: right bytes at the right time, and nothing of the application disturbed.
#include "core/copy/copy_any.hpp"
#include "core/copy/copy_pieces.hpp"
#include "core/memory/buffer_key.hpp"
#include "test/gtest/core/gpu_support.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

class CopyEngineTest : public GpuTest {
protected:
    Status copy(CopyEngine &engine, void *destination, const void *source, size_t length) {
        CopyTicket ticket;
        const Status status = start_any(engine, destination, source, length, &ticket);
        return status == Status::in_progress ? engine.wait(&ticket) : status;
    }
};

class CopyAny : public GpuTest,
                public testing::WithParamInterface<std::tuple<MemoryKind, MemoryKind>> {};

TEST_P(CopyAny, MovesExactlyTheBytesThatItIsTold) {
    const auto [from, to] = GetParam();
    constexpr size_t kMax = 300000;
    Buffer source(from, kMax + 128);
    Buffer destination(to, kMax + 128);
    uint64_t seed = 100 * static_cast<uint64_t>(from) + static_cast<uint64_t>(to);
    for (const size_t length :
         {size_t{1}, size_t{7}, size_t{64}, size_t{4096}, size_t{8193}, size_t{65536}, kMax}) {
        for (const size_t misaligned : {0, 1, 3, 64}) {
            source.fill(++seed);
            const uint64_t around = ++seed;
            destination.fill(around);
            const size_t target = 64 - misaligned;
            ASSERT_EQ(copy_any(destination.data() + target, source.data(), length), Status::ok);
            EXPECT_EQ(destination.check(target, length, seed - 1, around), "")
                << memory_kind_name(from) << " to " << memory_kind_name(to) << ", " << length
                << " bytes to offset " << target;
            EXPECT_EQ(source.check(0, kMax + 128, seed - 1, 0), "") << "the source changed";
        }
    }
    EXPECT_EQ(copy_any(destination.data(), source.data(), 0), Status::ok);
}

TEST_P(CopyAny, MovesPiecesAndNothingBetweenThem) {
    const auto [from, to] = GetParam();
    constexpr size_t kBytes = 40000;
    Buffer source(from, kBytes);
    Buffer destination(to, kBytes);
    for (const size_t step : {24, 700, 13000}) {
        source.fill(step);
        destination.fill(step + 1);
        std::vector<CopyPiece> pieces;
        std::vector<unsigned char> expected = read(destination, kBytes);
        const std::vector<unsigned char> original = read(source, kBytes);
        for (size_t begin = 5; begin + step <= kBytes; begin += step) {
            const size_t length = step / 2 + begin % 3;
            pieces.push_back({destination.data() + begin + 1, source.data() + begin, length});
            memcpy(expected.data() + begin + 1, original.data() + begin, length);
        }
        ASSERT_EQ(copy_pieces(pieces), Status::ok);
        EXPECT_EQ(read(destination, kBytes), expected)
            << memory_kind_name(from) << " to " << memory_kind_name(to) << ", every " << step;
    }
    EXPECT_EQ(copy_pieces({}), Status::ok);
}

/** Pieces that adjoin, rows that begin behind them or end with another length: each list is one
 * that a wrong distance between rows would spoil. */
TEST_P(CopyAny, TakesPiecesOfAllShapes) {
    const auto [from, to] = GetParam();
    constexpr size_t kBytes = 4000;
    Buffer source(from, kBytes);
    Buffer destination(to, kBytes);
    struct Shape {
        size_t target, origin, length;
    };
    const std::vector<std::vector<Shape>> lists = {
        {{0, 0, 8}, {8, 8, 8}, {100, 200, 16}, {200, 400, 16}, {300, 600, 16}},
        {{0, 0, 16}, {64, 32, 16}, {128, 64, 16}, {192, 96, 8}, {200, 104, 8}, {264, 136, 16}},
        {{1000, 0, 16}, {900, 32, 16}, {800, 64, 16}},    // down in the destination
        {{0, 2000, 16}, {32, 1900, 16}, {64, 1800, 16}},  // and in the source
        {{0, 0, 16}, {32, 16, 16}, {64, 32, 16}, {64 + 16, 48, 16}, {200, 300, 16}},
        {{0, 0, 0}, {10, 10, 5}, {20, 20, 0}, {30, 30, 5}},
    };
    uint64_t seed = 7000;
    for (const auto &list : lists) {
        source.fill(++seed);
        destination.fill(++seed);
        std::vector<unsigned char> expected = read(destination, kBytes);
        const std::vector<unsigned char> original = read(source, kBytes);
        std::vector<CopyPiece> pieces;
        for (const Shape &shape : list) {
            pieces.push_back(
                {destination.data() + shape.target, source.data() + shape.origin, shape.length});
            memcpy(expected.data() + shape.target, original.data() + shape.origin, shape.length);
        }
        ASSERT_EQ(copy_pieces(pieces), Status::ok);
        EXPECT_EQ(read(destination, kBytes), expected)
            << memory_kind_name(from) << " to " << memory_kind_name(to) << ", list "
            << &list - lists.data();
    }
}

/** Two pieces always have some distance: they are no rows when they lie in two kinds of memory. */
TEST_F(CopyEngineTest, CopiesPiecesOfDifferentMemoryInOneList) {
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (const MemoryKind kind : {MemoryKind::host, MemoryKind::device, MemoryKind::managed,
                                  MemoryKind::pinned, MemoryKind::device, MemoryKind::host}) {
        buffers.push_back(std::make_unique<Buffer>(kind, 6000));
    }
    uint64_t seed = 9000;
    for (const auto &from : buffers) {
        for (const auto &to : buffers) {
            std::vector<CopyPiece> pieces;
            Buffer packed(MemoryKind::host, 3000);
            from->fill(++seed);
            to->fill(++seed);
            packed.fill(++seed);
            pieces.push_back({packed.data(), from->data(), 1000});
            pieces.push_back({to == from ? packed.data() + 1000 : to->data() + 3000,
                              to == from ? from->data() + 2000 : from->data() + 1000, 1000});
            std::sort(pieces.begin(), pieces.end(), [](const CopyPiece &a, const CopyPiece &b) {
                return a.destination < b.destination;
            });
            ASSERT_EQ(copy_pieces(pieces), Status::ok);
            for (const CopyPiece &piece : pieces) {
                unsigned char here[1000];
                unsigned char there[1000];
                ASSERT_EQ(copy_any(here, piece.destination, 1000), Status::ok);
                ASSERT_EQ(copy_any(there, piece.source, 1000), Status::ok);
                EXPECT_EQ(memcmp(here, there, 1000), 0);
            }
        }
    }
}

/** Equal blocks at equal distances are one call of the driver, whatever their number, where kernels
 * reach only one side. */
TEST_F(CopyEngineTest, CopiesRowsByOneCall) {
    SKIP_UNLESS_SIMULATED();
    constexpr size_t kRows = 1000;
    Buffer device(MemoryKind::device, kRows * 48);
    Buffer packed(MemoryKind::host, kRows * 12);
    std::vector<CopyPiece> pieces;
    for (size_t i = 0; i < kRows; ++i) {
        pieces.push_back({packed.data() + 12 * i, device.data() + 48 * i, 12});
    }
    ASSERT_EQ(copy_pieces(pieces), Status::ok);
    reset_calls();
    ASSERT_EQ(copy_pieces(pieces), Status::ok);
    EXPECT_EQ(calls("cuMemcpy2DAsync"), 1u);
    EXPECT_EQ(calls("cuMemcpyAsync"), 0u);
    EXPECT_EQ(calls("cuMemcpyBatchAsync"), 0u);
    EXPECT_EQ(calls("cuEventRecord"), 1u);
}

TEST_P(CopyAny, TakesMisalignedSources) {
    const auto [from, to] = GetParam();
    Buffer original(MemoryKind::host, 5000);
    Buffer source(from, 6000);
    Buffer destination(to, 6000);
    for (const size_t misaligned : {1, 3, 63}) {
        original.fill(misaligned);
        destination.fill(99);
        ASSERT_EQ(copy_any(source.data() + misaligned, original.data(), 5000), Status::ok);
        ASSERT_EQ(copy_any(destination.data() + 1, source.data() + misaligned, 5000), Status::ok);
        EXPECT_EQ(destination.check(1, 5000, misaligned, 99), "");
    }
}

std::string pair_name(const testing::TestParamInfo<std::tuple<MemoryKind, MemoryKind>> &info) {
    return std::string(memory_kind_name(std::get<0>(info.param))) + "_to_" +
           memory_kind_name(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Pairs, CopyAny,
                         testing::Combine(testing::ValuesIn(kAllKinds),
                                          testing::ValuesIn(kAllKinds)),
                         pair_name);

TEST_F(CopyEngineTest, StartReturnsBeforeTheCopyIsDone) {
    if (!simulated()) {
        GTEST_SKIP() << "needs a slow GPU";
    }
    set_simulation("SIMCUDA_DELAY_US", "20000");
    Buffer source(MemoryKind::device, 4096);
    Buffer destination(MemoryKind::pinned, 4096);
    source.fill(1);
    destination.fill(2);
    CopyEngine engine;
    CopyTicket ticket;
    ASSERT_EQ(start_any(engine, destination.data(), source.data(), 4096, &ticket),
              Status::in_progress);
    EXPECT_EQ(engine.poll(&ticket), Status::in_progress);
    EXPECT_EQ(destination.check(0, 4096, 2, 0), "") << "no byte has moved yet";
    EXPECT_EQ(engine.wait(&ticket), Status::ok);
    EXPECT_EQ(destination.check(0, 4096, 1, 0), "");
    EXPECT_EQ(ticket.batch, nullptr) << "the ticket is used up";
    EXPECT_EQ(engine.poll(&ticket), Status::ok);
}

TEST_F(CopyEngineTest, ManyCopiesUnderWayCompleteInOrder) {
    constexpr size_t kCopies = 24;
    Buffer source(MemoryKind::device, kCopies * 512);
    Buffer destination(MemoryKind::pinned, kCopies * 512);
    source.fill(5);
    destination.fill(6);
    CopyEngine engine;
    std::vector<CopyTicket> tickets(kCopies);
    for (size_t i = 0; i < kCopies; ++i) {
        ASSERT_EQ(start_any(engine, destination.data() + i * 512, source.data() + i * 512, 512,
                            &tickets[i]),
                  Status::in_progress);
    }
    ASSERT_EQ(engine.wait(&tickets[kCopies - 1]), Status::ok);
    for (CopyTicket &ticket : tickets) {
        EXPECT_EQ(engine.poll(&ticket), Status::ok) << "started before one that is complete";
    }
    EXPECT_EQ(destination.check(0, kCopies * 512, 5, 0), "");
}

TEST_F(CopyEngineTest, DoesNotWaitForTheApplicationsStreams) {
    const auto launch =
        cuda_function<CUresult (*)(CUstream, void (*)(void *), void *)>("cuLaunchHostFunc");
    std::atomic<bool> go{false};
    Buffer source(MemoryKind::device, 4096);
    Buffer destination(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    source.fill(1);
    destination.fill(2);
    host.fill(3);
    CopyEngine engine;
    // Work of the application on the default stream which waits for the message.
    ASSERT_EQ(launch(
                  nullptr,
                  [](void *flag) {
                      while (!static_cast<std::atomic<bool> *>(flag)->load()) {
                          std::this_thread::yield();
                      }
                  },
                  &go),
              CUDA_SUCCESS);
    // A watchdog: without it a fault here would be a test that never ends.
    std::atomic<bool> done{false};
    std::atomic<bool> too_late{false};
    std::thread watchdog([&] {
        for (int i = 0; i < 1000 && !done; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        too_late = !done;
        go = true;
    });
    EXPECT_EQ(copy(engine, destination.data(), source.data(), 4096), Status::ok);
    EXPECT_EQ(copy(engine, host.data(), destination.data(), 4096), Status::ok);
    done = true;
    watchdog.join();
    EXPECT_FALSE(too_late) << "the copies waited for the application";
    EXPECT_EQ(host.check(0, 4096, 1, 0), "");
}

TEST_F(CopyEngineTest, AnyCurrentContextWorksAndStaysCurrent) {
    int count = 0;
    cuda_.device_get_count(&count);
    Buffer source(MemoryKind::device, 4096);
    Buffer host(MemoryKind::host, 4096);
    source.fill(1);
    std::vector<CUcontext> contexts = {nullptr, context_};
    if (count > 1) {
        contexts.emplace_back();
        ASSERT_EQ(cuda_.device_primary_ctx_retain(&contexts.back(), 1), CUDA_SUCCESS);
    }
    CopyEngine engine;
    for (const CUcontext context : contexts) {
        host.fill(2);
        std::thread([&] {
            if (context != nullptr) {
                cuda_.ctx_push_current(context);
            }
            CopyTicket ticket;
            EXPECT_EQ(start_any(engine, host.data(), source.data(), 4096, &ticket),
                      Status::in_progress);
            EXPECT_EQ(current_context(), context);
            EXPECT_EQ(engine.wait(&ticket), Status::ok);
            EXPECT_EQ(current_context(), context);
            EXPECT_EQ(copy_any(host.data() + 100, source.data() + 100, 1), Status::ok);
            EXPECT_EQ(current_context(), context);
            {
                CopyEngine passing;
                EXPECT_EQ(copy(passing, host.data(), source.data(), 8), Status::ok);
            }
            EXPECT_EQ(current_context(), context);
        }).join();
        EXPECT_EQ(host.check(0, 4096, 1, 0), "");
    }
    if (count > 1) {
        cuda_.device_primary_ctx_release(1);
    }
}

TEST_F(CopyEngineTest, CopiesBetweenTwoDevices) {
    int count = 0;
    cuda_.device_get_count(&count);
    if (count < 2) {
        GTEST_SKIP() << "one device only";
    }
    CUcontext other, popped;
    ASSERT_EQ(cuda_.device_primary_ctx_retain(&other, 1), CUDA_SUCCESS);
    Buffer here(MemoryKind::device, 4096);
    here.fill(1);
    cuda_.ctx_push_current(other);
    {
        Buffer there(MemoryKind::device, 4096);
        Buffer back(MemoryKind::host, 4096);
        cuda_.ctx_pop_current(&popped);
        EXPECT_EQ(copy_any(there.data(), here.data(), 4096), Status::ok);
        EXPECT_EQ(copy_any(back.data(), there.data(), 4096), Status::ok);
        EXPECT_EQ(back.check(0, 4096, 1, 0), "");
        cuda_.ctx_push_current(other);
    }
    cuda_.ctx_pop_current(&popped);
    cuda_.device_primary_ctx_release(1);
}

TEST_F(CopyEngineTest, WorksAgainAfterTheApplicationEndedItsContext) {
    int count = 0;
    cuda_.device_get_count(&count);
    const CUdevice device = count > 1 ? 1 : 0;
    if (device == 0) {
        cuda_.device_primary_ctx_release(0);  // the fixture's, which must go for this test
    }
    CopyEngine engine;
    Buffer host(MemoryKind::host, 4096);
    Buffer back(MemoryKind::host, 4096);
    for (uint64_t life = 0; life < 3; ++life) {
        CUcontext context, popped;
        ASSERT_EQ(cuda_.device_primary_ctx_retain(&context, device), CUDA_SUCCESS);
        cuda_.ctx_push_current(context);
        {
            Buffer memory(MemoryKind::device, 4096);
            host.fill(life);
            EXPECT_EQ(copy(engine, memory.data(), host.data(), 4096), Status::ok) << life;
            EXPECT_EQ(copy(engine, back.data(), memory.data(), 4096), Status::ok) << life;
            EXPECT_EQ(back.check(0, 4096, life, 0), "");
        }
        cuda_.ctx_pop_current(&popped);
        if (device != 0 || life != 2) {
            cuda_.device_primary_ctx_release(device);
        }
    }
}

TEST_F(CopyEngineTest, MemoryPoolsNameNoContextAndWorkAllTheSame) {
    const auto allocate =
        cuda_function<CUresult (*)(CUdeviceptr *, size_t, CUstream)>("cuMemAllocAsync");
    const auto release = cuda_function<CUresult (*)(CUdeviceptr, CUstream)>("cuMemFreeAsync");
    CUdeviceptr pooled = 0;
    ASSERT_EQ(allocate(&pooled, 4096, nullptr), CUDA_SUCCESS);
    auto *address = reinterpret_cast<unsigned char *>(pooled);
    EXPECT_EQ(query_memory(address).kind, MemoryKind::device);
    Buffer source(MemoryKind::host, 4096);
    Buffer back(MemoryKind::host, 4096);
    source.fill(1);
    std::thread([&] {
        EXPECT_EQ(copy_any(address, source.data(), 4096), Status::ok);
        EXPECT_EQ(copy_any(back.data(), address, 4096), Status::ok);
        EXPECT_EQ(current_context(), nullptr);
    }).join();
    EXPECT_EQ(back.check(0, 4096, 1, 0), "");
    release(pooled, nullptr);
}

TEST_F(CopyEngineTest, ThreadsCopyAtOnce) {
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            cuda_.ctx_push_current(context_);
            Buffer source(MemoryKind::host, 4096);
            Buffer middle(MemoryKind::device, 4096);
            Buffer back(MemoryKind::host, 4096);
            for (uint64_t i = 0; i < 50; ++i) {
                source.fill(t * 1000 + i);
                ASSERT_EQ(copy_any(middle.data(), source.data(), 4096), Status::ok);
                ASSERT_EQ(copy_any(back.data(), middle.data(), 4096), Status::ok);
                ASSERT_EQ(back.check(0, 4096, t * 1000 + i, 0), "");
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

TEST_F(CopyEngineTest, RepeatedCopyCostsFiveCallsAndOneForEachPoll) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    CopyEngine engine;
    for (const bool to_gpu : {true, false}) {
        unsigned char *destination = to_gpu ? device.data() : host.data();
        const unsigned char *source = to_gpu ? host.data() : device.data();
        ASSERT_EQ(copy(engine, destination, source, 4096), Status::ok);
        reset_calls();
        CopyTicket ticket;
        ASSERT_EQ(start_any(engine, destination, source, 4096, &ticket), Status::in_progress);
        EXPECT_EQ(calls("cuPointerGetAttributes"), 2u);
        EXPECT_EQ(calls("cuCtxGetId"), 1u);
        EXPECT_EQ(calls("cuMemcpyAsync"), 1u);
        EXPECT_EQ(calls("cuEventRecord"), 1u);
        EXPECT_EQ(calls("cuThreadExchangeStreamCaptureMode"), capture_mode_calls());
        EXPECT_EQ(calls_of_all(), 5u + capture_mode_calls());
        reset_calls();
        ASSERT_EQ(engine.wait(&ticket), Status::ok);
        EXPECT_GE(calls("cuEventQuery"), 1u);
        EXPECT_EQ(calls_of_all(), calls("cuEventQuery") + capture_mode_calls());
    }
    reset_calls();
    EXPECT_EQ(copy(engine, device.data(), host.data(), 0), Status::ok);
    EXPECT_EQ(engine.progress(), 0u);
    EXPECT_EQ(calls_of_all(), 0u) << "nothing to copy";
}

TEST_F(CopyEngineTest, CopyAnyNeedsNoEvent) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    ASSERT_EQ(copy_any(device.data(), host.data(), 4096), Status::ok);
    reset_calls();
    ASSERT_EQ(copy_any(device.data(), host.data(), 4096), Status::ok);
    EXPECT_EQ(calls("cuPointerGetAttributes"), 2u);
    EXPECT_EQ(calls("cuCtxGetId"), 1u);
    EXPECT_EQ(calls("cuMemcpyAsync"), 1u);
    EXPECT_GE(calls("cuStreamQuery"), 1u);
    EXPECT_EQ(calls("cuThreadExchangeStreamCaptureMode"), capture_mode_calls());
    EXPECT_EQ(calls_of_all(), 4u + calls("cuStreamQuery") + capture_mode_calls());
}

TEST_F(CopyEngineTest, ScopeSharesOneExchangeOfTheCaptureMode) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    CopyEngine engine;
    query_memory(device.data());  // so that the buffer is set up
    reset_calls();
    { const CopyEngine::Scope scope(engine); }
    EXPECT_EQ(calls_of_all(), 0u) << "nothing needed the driver";
    {
        const CopyEngine::Scope outer(engine);
        for (int i = 0; i < 3; ++i) {
            const CopyEngine::Scope inner(engine);
            EXPECT_EQ(copy(engine, device.data(), host.data(), 64), Status::ok);
        }
    }
    EXPECT_EQ(calls("cuThreadExchangeStreamCaptureMode"), capture_mode_calls());
}

TEST_F(CopyEngineTest, PollNeverAsksTheDriverAndProgressAsksOnce) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    set_simulation("SIMCUDA_DELAY_US", "20000");
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    CopyEngine engine;
    CopyTicket tickets[2];
    for (CopyTicket &ticket : tickets) {
        ASSERT_EQ(start_any(engine, device.data(), host.data(), 64, &ticket), Status::in_progress);
    }
    reset_calls();
    for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(engine.poll(&tickets[0]), Status::in_progress);
    }
    EXPECT_EQ(calls_of_all(), 0u);
    EXPECT_EQ(engine.progress(), 0u) << "nothing is over yet";
    EXPECT_EQ(calls("cuEventQuery"), 1u) << "the second cannot be over before the first";
    EXPECT_EQ(calls_of_all(), 1u + capture_mode_calls());
    while (engine.progress() == 0) {
    }
    reset_calls();
    EXPECT_EQ(engine.poll(&tickets[0]), Status::ok);
    EXPECT_EQ(calls_of_all(), 0u);
    EXPECT_EQ(engine.wait(&tickets[1]), Status::ok);
}

TEST_F(CopyEngineTest, GivesBackItsStreamsAndEvents) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    constexpr size_t kBulk = 1 << 20;
    Buffer device(MemoryKind::device, kBulk);
    Buffer host(MemoryKind::pinned, kBulk);
    reset_calls();
    {
        CopyEngine engine;
        EXPECT_EQ(copy(engine, device.data(), host.data(), 64), Status::ok);
        EXPECT_EQ(calls("cuStreamCreate"), 1u);
        EXPECT_EQ(copy(engine, host.data(), device.data(), kBulk - 1), Status::ok);
        EXPECT_EQ(calls("cuStreamCreate"), 2u) << "one for each direction";
        EXPECT_EQ(copy(engine, device.data(), host.data(), kBulk), Status::ok);
        EXPECT_EQ(copy(engine, host.data(), device.data(), kBulk), Status::ok);
        EXPECT_EQ(calls("cuStreamCreate"), 4u) << "and two more for large copies";
        EXPECT_EQ(copy(engine, host.data(), device.data(), kBulk), Status::ok);
        EXPECT_EQ(calls("cuStreamCreate"), 4u);
        EXPECT_EQ(calls("cuEventCreate"), 1u) << "an event serves again";
        CopyTicket tickets[3];
        for (CopyTicket &ticket : tickets) {
            start_any(engine, device.data(), host.data(), 64, &ticket);
        }
        for (CopyTicket &ticket : tickets) {
            EXPECT_EQ(engine.wait(&ticket), Status::ok);
        }
        EXPECT_EQ(calls("cuEventCreate"), 2u) << "two batches run at once";
    }
    EXPECT_EQ(calls("cuStreamDestroy"), 4u);
    EXPECT_EQ(calls("cuEventDestroy"), 2u);
}

TEST_F(CopyEngineTest, EngineThatEndsLeavesNoTicketWaiting) {
    if (!simulated()) {
        GTEST_SKIP() << "needs a slow GPU";
    }
    set_simulation("SIMCUDA_DELAY_US", "5000");
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    CopyTicket tickets[4];  // two run, two are collected
    reset_calls();
    {
        CopyEngine engine;
        for (CopyTicket &ticket : tickets) {
            ASSERT_EQ(start_any(engine, device.data(), host.data(), 64, &ticket),
                      Status::in_progress);
        }
    }
    EXPECT_EQ(calls("cuEventDestroy"), calls("cuEventCreate"));
    CopyEngine other;
    for (CopyTicket &ticket : tickets) {
        EXPECT_EQ(other.poll(&ticket), Status::gpu_error) << "nobody knows how it ended";
        EXPECT_EQ(other.poll(&ticket), Status::ok) << "used up";
    }
    EXPECT_EQ(cuda_.stream_synchronize(nullptr), CUDA_SUCCESS);
}

TEST_F(CopyEngineTest, CopiesOfAContextThatWasResetEnd) {
    const auto reset = cuda_function<CUresult (*)(CUdevice)>("cuDevicePrimaryCtxReset_v2");
    int count = 0;
    cuda_.device_get_count(&count);
    if (!simulated() || reset == nullptr || count < 2) {
        GTEST_SKIP() << "needs a slow GPU besides the one of the fixture";
    }
    const LogCapture log;
    CopyEngine engine;
    Buffer host(MemoryKind::pinned, 4096);
    Buffer back(MemoryKind::host, 4096);
    for (const bool progressed : {true, false}) {
        CUcontext context, popped;
        ASSERT_EQ(cuda_.device_primary_ctx_retain(&context, 1), CUDA_SUCCESS);
        cuda_.ctx_push_current(context);
        CUdeviceptr device = 0;
        ASSERT_EQ(cuda_.mem_alloc(&device, 4096), CUDA_SUCCESS);
        cuda_.ctx_pop_current(&popped);
        auto *bytes = reinterpret_cast<unsigned char *>(device);
        CopyTicket tickets[4];
        set_simulation("SIMCUDA_DELAY_US", "3000");
        for (CopyTicket &ticket : tickets) {
            ASSERT_EQ(start_any(engine, bytes, host.data(), 64, &ticket), Status::in_progress);
        }
        set_simulation("SIMCUDA_DELAY_US", "5");
        ASSERT_EQ(reset(1), CUDA_SUCCESS);
        if (progressed) {
            for (CopyTicket &ticket : tickets) {
                EXPECT_EQ(engine.wait(&ticket), Status::gpu_error);
            }
        }
        // The next life of the context has the same handle.
        ASSERT_EQ(cuda_.device_primary_ctx_retain(&context, 1), CUDA_SUCCESS);
        cuda_.ctx_push_current(context);
        {
            Buffer memory(MemoryKind::device, 4096);
            memory.fill(progressed);
            cuda_.ctx_pop_current(&popped);
            EXPECT_EQ(copy(engine, back.data(), memory.data(), 4096), Status::ok);
            EXPECT_EQ(back.check(0, 4096, progressed, 0), "");
            cuda_.ctx_push_current(context);
        }
        cuda_.ctx_pop_current(&popped);
        if (!progressed) {
            for (CopyTicket &ticket : tickets) {
                EXPECT_EQ(engine.poll(&ticket), Status::gpu_error) << "ended with its context";
            }
        }
        cuda_.device_primary_ctx_release(1);
    }
}

/** Another context of device 0, in which a copy may be under way when it ends. */
class OtherContext {
public:
    OtherContext() {
        const CurrentContext current(CudaDriver::get(), context_);
        load_kernels(context_);
        memory_ = std::make_unique<Buffer>(MemoryKind::device, 4096);
    }
    unsigned char *memory() const { return memory_->data(); }
    void end() {
        memory_->forget();
        destroy_context(context_);
    }

private:
    const CUcontext context_ = make_context();
    std::unique_ptr<Buffer> memory_;
};

/** To make one current that has ended crashes, with some drivers. */
TEST_F(CopyEngineTest, AContextThatHasEndedIsNotEntered) {
    SKIP_UNLESS_SIMULATED();
    const LogCapture log;
    CopyEngine engine;
    Buffer host(MemoryKind::pinned, 4096);
    OtherContext other;
    CopyTicket tickets[5];  // two run, two are collected, and one is within the GPU
    set_simulation("SIMCUDA_DELAY_US", "3000");
    for (size_t i = 0; i < 4; ++i) {
        ASSERT_EQ(start_any(engine, other.memory(), host.data(), 64, &tickets[i]),
                  Status::in_progress);
    }
    ASSERT_EQ(start_any(engine, other.memory() + 2048, other.memory() + 1024, 64, &tickets[4]),
              Status::in_progress);
    set_simulation("SIMCUDA_DELAY_US", "5");
    other.end();
    reset_calls();
    for (CopyTicket &ticket : tickets) {
        EXPECT_EQ(engine.wait(&ticket), Status::gpu_error);
    }
    EXPECT_EQ(calls("cuCtxPushCurrent"), 0u);
}

TEST_F(CopyEngineTest, AContextNearAGpuIsOneThatLives) {
    const auto reset = cuda_function<CUresult (*)(CUdevice)>("cuDevicePrimaryCtxReset_v2");
    int count = 0;
    cuda_.device_get_count(&count);
    if (reset == nullptr || count < 2) {
        GTEST_SKIP() << "needs a GPU besides the one of the fixture";
    }
    CUcontext context = nullptr;
    ASSERT_EQ(cuda_.device_primary_ctx_retain(&context, 1), CUDA_SUCCESS);
    CopyEngine engine;
    EXPECT_EQ(engine.context_near(device_identity(1)), context);
    EXPECT_EQ(engine.context_near(device_identity(0)), context_);
    ASSERT_EQ(reset(1), CUDA_SUCCESS);
    EXPECT_EQ(engine.context_near(device_identity(1)), context_) << "better than none";
    EXPECT_EQ(engine.context_near(device_identity(0)), context_);
    if (simulated()) {
        reset_calls();
        EXPECT_EQ(engine.context_near(device_identity(0)), context_);
        EXPECT_EQ(calls_of_all(), 1u) << "whether it lives";
    }
    cuda_.device_primary_ctx_release(1);
}

/** The only one of the process has ended, and is current still. */
FreshProcess none_near("no-context-near", [] {
    const CudaDriver &cuda = *CudaDriver::get();
    CUcontext context = enter_primary_context(0);
    const auto reset = cuda_function<CUresult (*)(CUdevice)>("cuDevicePrimaryCtxReset_v2");
    if (context == nullptr) {
        return 1;
    }
    CopyEngine engine;
    const uint64_t device = device_identity(0);
    if (engine.context_near(device) != context) {
        return 2;
    }
    if (reset(0) != CUDA_SUCCESS || engine.context_near(device) != nullptr) {
        return 3;
    }
    const bool retained = cuda.device_primary_ctx_retain(&context, 0) == CUDA_SUCCESS;
    return retained && engine.context_near(device) == context ? 0 : 4;
});

TEST_F(CopyEngineTest, NoContextIsNearWhereNoneLives) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(none_near.run(), 0);
}

}  // namespace
}  // namespace gpushm
