// SPDX-License-Identifier: BSD-3-Clause
// CopyEngine::start_by_kernel: many pieces by one launch, and what does not suit it.
#include "core/copy/copy_pieces.hpp"
#include "core/copy/row_copy_list.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"
#include "core/reclaim/context_lifetime.hpp"
#include "test/gtest/core/gpu_support.hpp"

#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

/** Small pieces of different lengths, with gaps between them. */
std::vector<CopyPiece> scattered(const Buffer &to, const Buffer &from, size_t count) {
    std::vector<CopyPiece> pieces;
    for (size_t i = 0; i < count; ++i) {
        pieces.push_back({to.data() + 64 * i, from.data() + 64 * i + i % 5, 16 + i % 7});
    }
    return pieces;
}

/** That the pieces of scattered() arrived. */
void expect_scattered(const std::vector<unsigned char> &got,
                      const std::vector<unsigned char> &sent) {
    for (size_t i = 0; i < got.size() / 64; ++i) {
        ASSERT_EQ(memcmp(&got[64 * i], &sent[64 * i + i % 5], 16 + i % 7), 0) << i;
    }
}

class RowCopyTest : public GpuTest {
protected:
    void SetUp() override {
        if (!KernelCodes::possible()) {
            GTEST_SKIP() << "built without a CUDA compiler, or the driver has no kernels";
        }
    }
};

struct Shape {
    size_t length, rows, target, origin, destination_pitch, source_pitch;
};

/** What a kernel would get wrong: words that are wider than an address, a pitch or a length
 * permits, the last row, more words than threads. */
std::vector<Shape> shapes() {
    std::vector<Shape> all = {
        {1, 1, 0, 0, 0, 0},          {16, 1, 1, 0, 0, 0},      {16, 3, 0, 0, 16, 16},
        {16, 3, 0, 0, 24, 16},       {16, 3, 0, 0, 16, 20},    {12, 5, 4, 8, 36, 12},
        {2, 7, 0, 0, 2, 6},          {3, 1000, 1, 2, 3, 7},    {4096, 9, 0, 0, 4096, 8192},
        {1, 5000, 0, 0, 1, 2},       {100000, 1, 0, 16, 0, 0}, {99999, 2, 1, 1, 99999, 100001},
        {512, 150, 0, 0, 512, 1024}, {8, 1, 8, 4, 0, 0},       {40, 2000, 8, 0, 40, 80},
    };
    std::mt19937_64 random(4711);
    for (int i = 0; i < 60; ++i) {
        const size_t length = 1 + random() % 300;
        all.push_back({length, 1 + random() % 200, random() % 17, random() % 17,
                       length + random() % 40, length + random() % 40});
    }
    return all;
}

TEST_F(RowCopyTest, CopiesRowsAndNothingBetweenThem) {
    constexpr size_t kBytes = 220000;
    constexpr size_t kExtra = 100;
    for (const MemoryKind from : {MemoryKind::device, MemoryKind::pinned}) {
        for (const MemoryKind to : {MemoryKind::device, MemoryKind::pinned}) {
            if (from == MemoryKind::pinned && to == MemoryKind::pinned) {
                continue;
            }
            Buffer source(from, kBytes);
            Buffer destination(to, kBytes);
            Buffer extra_source(from, 64 * kExtra);
            Buffer extra_destination(to, 64 * kExtra);
            const MemoryInfo info =
                query_memory(to == MemoryKind::device ? destination.data() : source.data());
            const CopyDirection direction =
                to == MemoryKind::device ? CopyDirection::to_gpu : CopyDirection::from_gpu;
            uint64_t seed = 0;
            for (const Shape &shape : shapes()) {
                source.fill(++seed);
                destination.fill(++seed);
                extra_source.fill(++seed);
                std::vector<unsigned char> expected = read(destination, kBytes);
                const std::vector<unsigned char> original = read(source, kBytes);
                for (size_t row = 0; row < shape.rows; ++row) {
                    memcpy(expected.data() + shape.target + row * shape.destination_pitch,
                           original.data() + shape.origin + row * shape.source_pitch, shape.length);
                }
                // Enough of them that the kernel is worth its launch.
                std::vector<CopyJob> jobs = {
                    {destination.data() + shape.target,
                     source.data() + shape.origin,
                     shape.length,
                     info,
                     direction,
                     false,
                     {shape.rows, shape.destination_pitch, shape.source_pitch}}};
                for (size_t i = 0; i < kExtra; ++i) {
                    jobs.push_back({extra_destination.data() + 64 * i, extra_source.data() + 64 * i,
                                    60, info, direction});
                }
                CopyEngine engine;
                std::vector<CopyTicket> tickets;
                ASSERT_TRUE(engine.start_by_kernel(jobs, &tickets));
                ASSERT_EQ(tickets.size(), jobs.size());
                for (CopyTicket &ticket : tickets) {
                    ASSERT_EQ(engine.wait(&ticket), Status::ok);
                }
                ASSERT_EQ(read(destination, kBytes), expected)
                    << memory_kind_name(from) << " to " << memory_kind_name(to) << ": "
                    << shape.rows << " rows of " << shape.length << ", shape " << seed / 3;
                const std::vector<unsigned char> sent = read(extra_source, 64 * kExtra);
                const std::vector<unsigned char> got = read(extra_destination, 64 * kExtra);
                for (size_t i = 0; i < kExtra; ++i) {
                    ASSERT_EQ(memcmp(got.data() + 64 * i, sent.data() + 64 * i, 60), 0);
                }
            }
        }
    }
}

/** The number of calls does not depend on that of the pieces, up to what a launch takes. */
TEST_F(RowCopyTest, ManyPiecesAreFewLaunches) {
    SKIP_UNLESS_SIMULATED();
    constexpr size_t kPieces = 3000;
    Buffer source(MemoryKind::device, kPieces * 64);
    Buffer destination(MemoryKind::device, kPieces * 64);
    const std::vector<CopyPiece> pieces = scattered(destination, source, kPieces);
    ASSERT_EQ(copy_pieces(pieces), Status::ok);
    reset_calls();
    ASSERT_EQ(copy_pieces(pieces), Status::ok);
    EXPECT_EQ(calls("cuLaunchKernel"), (kPieces + kMaxKernelJobs - 1) / kMaxKernelJobs);
    EXPECT_EQ(calls("cuMemcpyAsync") + calls("cuMemcpyBatchAsync") + calls("cuMemcpy2DAsync"), 0u);
}

/** In which lists may be page-locked. */
TEST_F(RowCopyTest, NoListIsLaunchedWhileAContextEnds) {
    SKIP_UNLESS_SIMULATED();
    constexpr size_t kPieces = 100;
    Buffer source(MemoryKind::device, kPieces * 64);
    Buffer destination(MemoryKind::device, kPieces * 64);
    const std::vector<CopyPiece> pieces = scattered(destination, source, kPieces);
    const MemoryInfo info = query_memory(source.data());
    for (const bool within : {true, false}) {
        const auto launches = [&] {
            reset_calls();
            EXPECT_EQ(within ? copy_pieces_within(info, pieces) : copy_pieces(pieces), Status::ok);
            return calls("cuLaunchKernel");
        };
        EXPECT_EQ(launches(), 1u);
        source.fill(within ? 1 : 2);
        {
            const ContextLifetimeLock ending(ContextLifetimeLock::Mode::ending);
            EXPECT_NE(launches(), 1u) << "each piece by itself";
        }
        const std::vector<unsigned char> sent = read(source, kPieces * 64);
        const std::vector<unsigned char> got = read(destination, kPieces * 64);
        ASSERT_NO_FATAL_FAILURE(expect_scattered(got, sent));
        EXPECT_EQ(launches(), 1u);
    }
}

/** There is no memory for all lists at once. */
TEST_F(RowCopyTest, NoNumberOfPiecesIsTooMany) {
    SKIP_UNLESS_SIMULATED();
    constexpr size_t kPieces = 60000;
    Buffer source(MemoryKind::device, kPieces * 64);
    Buffer destination(MemoryKind::device, kPieces * 64);
    const std::vector<CopyPiece> pieces = scattered(destination, source, kPieces);
    const MemoryInfo info = query_memory(source.data());
    for (const bool within : {true, false}) {
        source.fill(within ? 1 : 2);
        const std::vector<unsigned char> sent = read(source, kPieces * 64);
        reset_calls();
        ASSERT_EQ(within ? copy_pieces_within(info, pieces) : copy_pieces(pieces), Status::ok);
        const size_t most = within ? RowCopyList::kMax : kMaxKernelJobs;
        EXPECT_EQ(calls("cuLaunchKernel"), (kPieces + most - 1) / most);
        EXPECT_EQ(calls("cuMemcpyAsync") + calls("cuMemcpyBatchAsync"), 0u);
        const std::vector<unsigned char> got = read(destination, kPieces * 64);
        ASSERT_NO_FATAL_FAILURE(expect_scattered(got, sent));
    }
}

/** A kernel that touched it would end the application's context. */
TEST_F(RowCopyTest, LeavesMemoryAloneThatKernelsMayNotReach) {
    constexpr size_t kPieces = 100;
    for (const MemoryKind kind : {MemoryKind::host, MemoryKind::managed}) {
        Buffer device(MemoryKind::device, kPieces * 64);
        Buffer other(kind, kPieces * 64);
        device.fill(1);
        other.fill(2);
        if (simulated()) {
            reset_calls();
        }
        ASSERT_EQ(copy_pieces(scattered(other, device, kPieces)), Status::ok);
        ASSERT_EQ(copy_pieces(scattered(device, other, kPieces)), Status::ok);
        if (simulated()) {
            EXPECT_EQ(calls("cuLaunchKernel"), 0u) << memory_kind_name(kind);
        }
    }
}

TEST_F(RowCopyTest, FewPiecesAreLeftToTheCopyEngine) {
    Buffer device(MemoryKind::device, 4096);
    Buffer pinned(MemoryKind::pinned, 4096);
    const MemoryInfo info = query_memory(device.data());
    CopyEngine engine;
    std::vector<CopyTicket> tickets;
    EXPECT_FALSE(engine.start_by_kernel(
        {{device.data(), pinned.data(), 64, info, CopyDirection::to_gpu}}, &tickets));
    EXPECT_TRUE(tickets.empty());
}

TEST_F(RowCopyTest, CopiesAllTheSameWhenTheLaunchFails) {
    SKIP_UNLESS_SIMULATED();
    constexpr size_t kPieces = 2000;
    Buffer source(MemoryKind::device, kPieces * 64);
    Buffer destination(MemoryKind::device, kPieces * 64);
    source.fill(5);
    destination.fill(6);
    const std::vector<CopyPiece> pieces = scattered(destination, source, kPieces);
    std::vector<unsigned char> expected = read(destination, kPieces * 64);
    const std::vector<unsigned char> original = read(source, kPieces * 64);
    for (const CopyPiece &piece : pieces) {
        const auto at = [](const void *address, const Buffer &buffer) {
            return static_cast<const unsigned char *>(address) - buffer.data();
        };
        memcpy(expected.data() + at(piece.destination, destination),
               original.data() + at(piece.source, source), piece.length);
    }
    reset_calls();
    set_simulation("SIMCUDA_FAIL", "cuLaunchKernel:1:701");
    EXPECT_EQ(copy_pieces(pieces), Status::ok);
    EXPECT_EQ(calls("cuLaunchKernel"), (kPieces + kMaxKernelJobs - 1) / kMaxKernelJobs);
    EXPECT_EQ(read(destination, kPieces * 64), expected);
}

/** From one piece, which is among the launch's parameters, to several lists, with and without
 * kernels that start. */
TEST_F(RowCopyTest, PiecesWithinAGpuAreOneLaunchForAList) {
    for (const size_t count :
         {size_t{1}, size_t{12}, size_t{13}, RowCopyList::kMax, 2 * RowCopyList::kMax + 1}) {
        for (const bool fails : {false, true}) {
            if (fails && !simulated()) {
                continue;
            }
            const size_t long_piece = 50000;
            const size_t bytes = count * 64 + long_piece;
            Buffer source(MemoryKind::device, bytes);
            Buffer destination(MemoryKind::device, bytes);
            source.fill(count);
            destination.fill(count + 1);
            std::vector<CopyPiece> pieces = scattered(destination, source, count - 1);
            pieces.push_back({destination.data() + 64 * (count - 1),
                              source.data() + 64 * (count - 1), long_piece});
            std::vector<unsigned char> expected = read(destination, bytes);
            const std::vector<unsigned char> original = read(source, bytes);
            for (const CopyPiece &piece : pieces) {
                const auto *from = static_cast<const unsigned char *>(piece.source);
                const auto *to = static_cast<const unsigned char *>(piece.destination);
                memcpy(&expected[to - destination.data()], &original[from - source.data()],
                       piece.length);
            }
            if (simulated()) {
                reset_calls();
                set_simulation("SIMCUDA_FAIL", fails ? "cuLaunchKernel:1:701" : "");
            }
            EXPECT_EQ(copy_pieces_within(query_memory(source.data()), pieces), Status::ok);
            if (simulated() && !fails) {
                EXPECT_EQ(calls("cuLaunchKernel"),
                          (count + RowCopyList::kMax - 1) / RowCopyList::kMax);
                EXPECT_EQ(calls("cuMemcpyAsync"), 0u);
            }
            EXPECT_EQ(read(destination, bytes), expected) << count;
        }
    }
}

/** They refer to `info`. */
std::vector<CopyJob> jobs_of(const std::vector<CopyPiece> &pieces, const MemoryInfo &info) {
    std::vector<CopyJob> jobs;
    for (const CopyPiece &piece : pieces) {
        jobs.push_back(
            {piece.destination, piece.source, piece.length, info, CopyDirection::to_gpu});
    }
    return jobs;
}

/** In another thread, while it is looked whether kernels reach the pieces; what there is has
 * another life then. */
TEST_F(RowCopyTest, AContextMayEndBeforeTheLaunch) {
    SKIP_UNLESS_SIMULATED();
    constexpr size_t kPieces = 100;
    Buffer source(MemoryKind::device, kPieces * 64);
    Buffer destination(MemoryKind::device, kPieces * 64);
    const MemoryInfo info = query_memory(source.data());
    const std::vector<CopyJob> jobs = jobs_of(scattered(destination, source, kPieces), info);
    CopyEngine engine;
    for (const char *rule : {"", "cuCtxGetId:2:709", ""}) {
        std::vector<CopyTicket> tickets;
        set_simulation("SIMCUDA_FAIL", rule);
        EXPECT_TRUE(engine.start_by_kernel(jobs, &tickets));
        set_simulation("SIMCUDA_FAIL", "");
        for (CopyTicket &ticket : tickets) {
            EXPECT_EQ(engine.wait(&ticket), Status::ok);
        }
    }
}

/** The kernel may still read its list, so nobody else gets the memory. In a process of its own,
 * which loses it. */
FreshProcess lists_left("row-copy-lists-left", [] {
    const CUcontext context = enter_primary_context(0);
    CHECK(context != nullptr);
    CHECK(load_kernels(context));
    constexpr size_t kPieces = 300;  // their list is not a small block
    Buffer source(MemoryKind::device, kPieces * 64);
    Buffer destination(MemoryKind::device, kPieces * 64);
    const std::vector<CopyPiece> pieces = scattered(destination, source, kPieces);
    CHECK(copy_pieces(pieces) == Status::ok);
    CHECK(copy_pieces_within(query_memory(source.data()), pieces) == Status::ok);
    CHECK(count_free_pinned_buffer_pool() == PinnedBufferPool::kBlocks);
    set_simulation("SIMCUDA_FAIL",
                   "cuStreamQuery:1:700,cuStreamSynchronize:1:700,"
                   "cuStreamQuery:1:700,cuStreamSynchronize:1:700");
    CHECK(copy_pieces_within(query_memory(source.data()), pieces) == Status::ok);
    CHECK(count_free_pinned_buffer_pool() == PinnedBufferPool::kBlocks - 1);
    for (const char *rule : {"cuEventQuery:1:700,cuStreamSynchronize:1:700",
                             "cuEventRecord:1:700,cuStreamSynchronize:1:700"}) {
        const size_t before = count_free_pinned_buffer_pool();
        set_simulation("SIMCUDA_FAIL", rule);
        CHECK(copy_pieces(pieces) == Status::ok);
        CHECK(count_free_pinned_buffer_pool() == before - 1);
    }
    set_simulation("SIMCUDA_FAIL", "");
    CHECK(copy_pieces(pieces) == Status::ok);
    CHECK(count_free_pinned_buffer_pool() == PinnedBufferPool::kBlocks - 3);
    // Engines that end before their copies, of which one cannot enter the context.
    for (const char *rule : {"", "cuCtxPushCurrent:1:2"}) {
        const size_t before = count_free_pinned_buffer_pool();
        auto engine = std::make_unique<CopyEngine>();
        const MemoryInfo info = query_memory(source.data());
        std::vector<CopyTicket> tickets;
        set_simulation("SIMCUDA_DELAY_US", "3000");
        CHECK(engine->start_by_kernel(jobs_of(pieces, info), &tickets));
        set_simulation("SIMCUDA_FAIL", rule);
        engine.reset();
        set_simulation("SIMCUDA_FAIL", "");
        CHECK(CopyEngine().poll(&tickets.front()) == Status::gpu_error);
        CHECK(count_free_pinned_buffer_pool() == before - 1);
    }
    // One that ends behind its context, with which the kernel ended.
    const size_t before = count_free_pinned_buffer_pool();
    auto engine = std::make_unique<CopyEngine>();
    const CUcontext other = make_context();
    {
        const CurrentContext current(CudaDriver::get(), other);
        CHECK(load_kernels(other));
        Buffer there(MemoryKind::device, kPieces * 64);
        Buffer to(MemoryKind::device, kPieces * 64);
        const MemoryInfo info = query_memory(there.data());
        std::vector<CopyTicket> tickets;
        CHECK(engine->start_by_kernel(jobs_of(scattered(to, there, kPieces), info), &tickets));
        there.forget();
        to.forget();
    }
    destroy_context(other);
    engine.reset();
    CHECK(count_free_pinned_buffer_pool() == before);
    return 0;
});

TEST_F(RowCopyTest, ListsOfKernelsWhoseEndIsNotKnownStayAsTheyAre) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(lists_left.run(), 0);
}

}  // namespace
}  // namespace gpushm
