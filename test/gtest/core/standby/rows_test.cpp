// SPDX-License-Identifier: BSD-3-Clause
// Rows that the standby kernel copies: exactly these bytes, no call of the driver, and nothing of
// this where rows are not for it.
#include "core/copy/copy_any.hpp"
#include "core/copy/copy_batch.hpp"
#include "core/copy/copy_pieces.hpp"
#include "core/copy/row_packing.hpp"
#include "core/copy/row_views.hpp"
#include "core/standby/standby_registry.hpp"
#include "test/gtest/core/standby/standby_support.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace gpushm {
namespace {

using namespace test;
using State = StandbyKernel::State;

constexpr uint32_t kBeat = 200'000;
constexpr uint32_t kLong = 1'000'000'000;
/** Rows at `target` and `origin` of two buffers. */
struct Shape {
    size_t length;
    CopyRows rows;
    size_t target = 0;
    size_t origin = 0;

    size_t end_of_destination() const {
        return target + (rows.count - 1) * rows.destination_pitch + length;
    }
    size_t end_of_source() const { return origin + (rows.count - 1) * rows.source_pitch + length; }
    StandbyJob job(const Buffer &destination, const Buffer &source) const {
        StandbyJob job = {destination.data() + target, source.data() + origin, length};
        job.rows = rows;
        return job;
    }
    /** What the kernel has to do. */
    void apply(std::vector<unsigned char> *destination,
               const std::vector<unsigned char> &source) const {
        for (size_t row = 0; row < rows.count; ++row) {
            memcpy(destination->data() + target + row * rows.destination_pitch,
                   source.data() + origin + row * rows.source_pitch, length);
        }
    }
};

/** What a kernel would get wrong: words that are wider than an address, a pitch or a length
 * permits, numbers of words of a row that are no powers of two, the last row, more words than
 * threads. */
std::vector<Shape> shapes() {
    std::vector<Shape> all = {
        {16, {3, 16, 16}},         {16, {3, 24, 16}},       {16, {3, 16, 20}},
        {12, {5, 36, 12}, 4, 8},   {2, {7, 2, 6}},          {3, {1000, 3, 7}, 1, 2},
        {8, {512, 8, 64}},         {8, {2048, 8, 16}},      {4, {4096, 4, 8}},
        {1, {16384, 1, 3}},        {2, {8192, 4, 2}},       {48, {341, 48, 96}},
        {8192, {2, 8192, 10000}},  {5461, {3, 5461, 6000}}, {64, {256, 128, 64}, 16, 32},
        {24, {100, 24, 40}, 8, 0}, {16, {1024, 16, 48}},    {1, {32768, 1, 3}},
        {8, {4096, 8, 24}},        {512, {64, 512, 528}},   {16383, {2, 16383, 20000}},
    };
    std::mt19937_64 random(4711);
    for (int i = 0; i < 80; ++i) {
        const size_t unit = size_t{1} << random() % 5;
        const size_t length = unit * (1 + random() % (200 / unit));
        const size_t most = kStandbyMostRowBytes / length;
        all.push_back({length,
                       {2 + random() % (most - 1), length + unit * (random() % 9),
                        length + unit * (random() % 9)},
                       unit * (random() % 17),
                       unit * (random() % 17)});
    }
    return all;
}

class StandbyRowsTest : public StandbyKernelTest {
protected:
    void make() { StandbyKernelTest::make({StandbyConfig::Mode::whenever_possible, kBeat, kLong}); }

    /** Gives all jobs at once, until a kernel has served all of them. */
    void copy(const std::vector<StandbyJob> &jobs) {
        size_t served = 0;
        for (int i = 0; i < 100 && served != jobs.size(); ++i) {
            ASSERT_TRUE(await_life());
            std::vector<StandbyTicket> tickets;
            for (const StandbyJob &job : jobs) {
                StandbyTicket ticket;
                if (!kernel_->give(job, &ticket)) {
                    break;
                }
                tickets.push_back(ticket);
            }
            served = 0;
            for (const StandbyTicket &ticket : tickets) {
                served += kernel_->await(ticket) == State::served ? 1 : 0;
            }
        }
        ASSERT_EQ(served, jobs.size());
    }
};

TEST_F(StandbyRowsTest, CopiesTheRowsAndNothingBetweenThem) {
    constexpr size_t kBytes = 320000;
    make();
    uint64_t seed = 0;
    for (const MemoryKind from : {MemoryKind::pinned, MemoryKind::device}) {
        for (const MemoryKind to : {MemoryKind::pinned, MemoryKind::device}) {
            Buffer source(from, kBytes);
            Buffer destination(to, kBytes);
            source.fill(++seed);
            for (const Shape &shape : shapes()) {
                ASSERT_LE(shape.end_of_destination(), kBytes);
                ASSERT_LE(shape.end_of_source(), kBytes);
                destination.fill(++seed);
                std::vector<unsigned char> expected = read(destination, kBytes);
                shape.apply(&expected, read(source, kBytes));
                StandbyJob job = shape.job(destination, source);
                job.to_own_gpu = to == MemoryKind::device;
                ASSERT_NO_FATAL_FAILURE(copy({job}));
                ASSERT_EQ(read(destination, kBytes), expected)
                    << memory_kind_name(from) << " to " << memory_kind_name(to) << ": "
                    << shape.rows.count << " rows of " << shape.length;
            }
        }
    }
}

/** Rows before, between and behind others that the kernel finds at the same time: plain ones, and
 * those whose payload rides in the command. */
TEST_F(StandbyRowsTest, CopiesRowsAmongOthersInOrder) {
    constexpr size_t kPart = 2048;
    constexpr size_t kParts = 12;
    constexpr size_t kBytes = kPart * kParts;
    make();
    Buffer source(MemoryKind::pinned, kBytes);
    Buffer between(MemoryKind::device, kBytes);
    Buffer destination(MemoryKind::pinned, kBytes);
    for (uint64_t round = 1; round <= 40; ++round) {
        source.fill(round);
        between.fill(1000 + round);
        destination.fill(2000 + round);
        const std::vector<unsigned char> sent = read(source, kBytes);
        std::vector<unsigned char> expected_between = read(between, kBytes);
        std::vector<unsigned char> expected = read(destination, kBytes);
        std::vector<StandbyJob> there;
        std::vector<StandbyJob> back;
        for (size_t i = 0; i < kParts; ++i) {
            const bool of_rows = (i * round) % 3 == 0;
            const size_t length = of_rows ? 1 + (i + round) % 40 : 30 + 60 * i;
            const Shape shape = {length, {of_rows ? 30u : 1u, 64, 48}, i * kPart, i * kPart};
            there.push_back(shape.job(between, source));
            there.back().cpu_may_read = i % 2 == 0;
            back.push_back(shape.job(destination, between));
            back.back().cpu_may_write = i % 2 == 0;
            shape.apply(&expected_between, sent);
            shape.apply(&expected, expected_between);
        }
        ASSERT_NO_FATAL_FAILURE(copy(there));
        ASSERT_EQ(read(between, kBytes), expected_between) << round;
        ASSERT_NO_FATAL_FAILURE(copy(back));
        ASSERT_EQ(read(destination, kBytes), expected) << round;
    }
}

/** What was read ahead is still there behind rows, and is not taken for them. */
TEST_F(StandbyRowsTest, AreNeverReadAhead) {
    constexpr size_t kBytes = 4096;
    make();
    Buffer first(MemoryKind::pinned, kBytes);
    Buffer next(MemoryKind::pinned, kBytes);
    Buffer destination(MemoryKind::device, kBytes);
    first.fill(1);
    StandbyJob reads = {destination.data(), first.data(), 1024};
    reads.message = 1;
    reads.next = {};
    reads.next.begin = next.data();
    reads.next.length = 1024;
    reads.next.message = 2;
    const Shape shape = {128, {8, 256, 128}};
    for (uint64_t round = 1; round <= 50; ++round) {
        next.fill(100 + round);
        destination.fill(200 + round);
        std::vector<unsigned char> expected = read(destination, kBytes);
        memcpy(expected.data(), first.data(), 1024);
        shape.apply(&expected, read(next, kBytes));
        StandbyJob rows = shape.job(destination, next);
        rows.message = 2;
        rows.next = reads.next;
        ASSERT_NO_FATAL_FAILURE(copy({reads}));
        ASSERT_NO_FATAL_FAILURE(copy({rows}));
        ASSERT_EQ(read(destination, kBytes), expected) << round;
        reads.next.message += 2;
    }
}

TEST_F(StandbyRowsTest, TakesOnlyWhatACommandDescribes) {
    make();
    const auto takes = [this](size_t length, const CopyRows &rows) {
        return kernel_->takes(rows, length);
    };
    EXPECT_TRUE(takes(8, {kStandbyMostRowBytes / 8, 8, 8}));
    EXPECT_FALSE(takes(8, {kStandbyMostRowBytes / 8 + 1, 8, 8})) << "too many bytes";
    EXPECT_FALSE(takes(8, {size_t{1} << 61, 8, 8})) << "so many that their number wraps";
    EXPECT_FALSE(takes(8, {2, 7, 8}));
    EXPECT_FALSE(takes(8, {2, 8, 7}));
    EXPECT_TRUE(takes(8, {2, kStandbyMostPitch, kStandbyMostPitch}));
    EXPECT_FALSE(takes(8, {2, size_t{kStandbyMostPitch} + 1, 8}));
    EXPECT_FALSE(takes(8, {2, 8, size_t{kStandbyMostPitch} + 1}));
}

// ---------------------------------------------------------------- by a copy engine

/** Whether a kernel of StandbyKernels runs in time. */
bool awake(StandbyKernel &kernel) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!kernel.alive() && std::chrono::steady_clock::now() < end) {
        kernel.note_copy();
        StandbyKernels::instance().tend(StandbyKernel::Moment::idle);
    }
    return kernel.alive();
}

unsigned long copying_calls() {
    return calls("cuMemcpy2DAsync") + calls("cuMemcpyAsync") + calls("cuMemcpyBatchAsync") +
           calls("cuLaunchKernel") + calls("cuEventRecord");
}

/** Columns of a stencil: from the GPU to host memory that holds them together, and back. */
struct Columns {
    static constexpr size_t kRows = 256;
    static constexpr size_t kPitch = 64;
    static constexpr size_t kBytes = kRows * kPitch;

    Columns() {
        device.fill(1);
        host.fill(2);
    }
    CopyPiece to_host(size_t column, size_t rows = kRows) const {
        return {host.data() + column * kRows * 8, device.data() + column * 8, 8, {rows, 8, kPitch}};
    }
    CopyPiece to_gpu(size_t column) const {
        return {
            device.data() + column * 8, host.data() + column * kRows * 8, 8, {kRows, kPitch, 8}};
    }
    CopyPiece within_gpu(size_t column) const {
        return {
            other.data() + column * kRows * 8, device.data() + column * 8, 8, {kRows, 8, kPitch}};
    }
    StridedRows rows(size_t column) const {
        return {reinterpret_cast<uint64_t>(device.data() + column * 8), 8, kRows, kPitch};
    }
    /** To the host and back, by blocks that stand for the column (RowViews). */
    Status copy_views(size_t column) {
        const StridedRows rows = this->rows(column);
        unsigned char *const gathered = host.data() + column * kRows * 8;
        add_row_source(block.data(), rows);
        const Status read = copy_any(gathered, block.data(), rows.bytes());
        RowViews::instance().remove(block.data());
        RowViews::instance().add_destination(block.data(), rows);
        const Status written = copy_any(block.data(), gathered, rows.bytes());
        const bool is_filled = RowViews::instance().is_filled(block.data());
        RowViews::instance().remove(block.data());
        return read != Status::ok ? read : is_filled ? written : Status::gpu_error;
    }
    /** Of the destination of to_host(). */
    bool arrived(size_t column, size_t rows = kRows) const {
        Buffer pattern(MemoryKind::host, kBytes);
        pattern.fill(1);
        for (size_t row = 0; row < rows; ++row) {
            if (memcmp(host.data() + (column * kRows + row) * 8,
                       pattern.data() + row * kPitch + column * 8, 8) != 0) {
                return false;
            }
        }
        return true;
    }

    Buffer device{MemoryKind::device, kBytes};
    Buffer other{MemoryKind::device, kBytes};
    Buffer host{MemoryKind::pinned, kBytes};
    Buffer block{MemoryKind::device, kRows * 8};
};

CopyJob job_to_host(const CopyPiece &piece, const MemoryInfo &info) {
    CopyJob job = {piece.destination, piece.source, piece.length, info, CopyDirection::from_gpu};
    job.rows = piece.rows;
    return job;
}

/** Whether copies of rows by an engine and by copy_pieces() are commands. 0 or what failed. */
int copy_columns() {
    const std::shared_ptr<StandbyKernel> kernel = lasting_kernel();
    CHECK(kernel != nullptr);
    Columns columns;
    const MemoryInfo info = query_memory(columns.device.data());
    CopyEngine engine;
    CHECK(engine.copy(job_to_host(columns.to_host(7), info)) == Status::ok);  // streams and events
    CHECK(awake(*kernel));
    reset_calls();
    CopyTicket ticket;
    const Status started = engine.start(job_to_host(columns.to_host(0), info), &ticket);
    const bool is_command = ticket.batch && ticket.batch->standby.end != 0;
    CHECK(started == Status::ok || engine.wait(&ticket) == Status::ok);
    CHECK(engine.copy(job_to_host(columns.to_host(1, 3), info)) == Status::ok);
    CHECK(copy_pieces({columns.to_host(2)}) == Status::ok);
    CHECK(copy_pieces({columns.to_host(3, 3), columns.to_host(4)}) == Status::ok);
    CHECK(copy_pieces({columns.to_gpu(2)}) == Status::ok);
    CHECK(copy_pieces_within(info, {columns.within_gpu(2), columns.within_gpu(3)}) == Status::ok);
    CHECK(columns.copy_views(5) == Status::ok);
    const unsigned long made = copying_calls();
    const bool lived = kernel->alive();
    CHECK(columns.arrived(0) && columns.arrived(1, 3) && columns.arrived(2) &&
          columns.arrived(3, 3) && columns.arrived(4) && columns.arrived(5));
    return lived ? (is_command && made == 0 ? 0 : 2) : kTryAgain;
}

FreshProcess without_driver("standby-rows-without-driver", copy_columns);

TEST_F(StandbyRowsTest, NeedNoCallOfTheDriver) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(run_until_it_counts(without_driver), 0);
}

/** Copies columns of so many rows that a launch for themselves is quicker than a copy engine, until
 * the standby kernel runs: nothing else asks for it. 0 or what failed. */
template <typename Copy>
int copy_until_launched(Copy copy) {
    constexpr size_t kRows = 2048;
    const std::shared_ptr<StandbyKernel> kernel = lasting_kernel();
    CHECK(kernel != nullptr);
    const Buffer device(MemoryKind::device, kRows * 16);
    const Buffer columns(MemoryKind::device, kRows * 16);
    const CopyPiece piece = {columns.data(), device.data(), 8, {kRows, 8, 16}};
    const CopyPiece other = {columns.data() + kRows * 8, device.data() + 8, 8, {kRows, 8, 16}};
    const MemoryInfo info = query_memory(device.data());
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!kernel->alive() && std::chrono::steady_clock::now() < end) {
        CHECK(copy(info, piece, other) == Status::ok);
        StandbyKernels::instance().tend(StandbyKernel::Moment::idle);
    }
    return kernel->alive() ? 0 : 2;
}

FreshProcess launched_for_column("standby-launched-for-column", [] {
    return copy_until_launched([](const MemoryInfo &, const CopyPiece &piece, const CopyPiece &) {
        return copy_pieces({piece});
    });
});

FreshProcess launched_for_columns("standby-launched-for-columns", [] {
    return copy_until_launched(
        [](const MemoryInfo &info, const CopyPiece &piece, const CopyPiece &other) {
            return copy_pieces_within(info, {piece, other});
        });
});

TEST_F(StandbyRowsTest, WantAKernelThoughAnotherOneCopiesThem) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(launched_for_column.run(), 0);
    EXPECT_EQ(launched_for_columns.run(), 0);
}

/** Copies that a thread waits for, one after the other, as MPI_Pack makes them. */
FreshProcess launched_by_waits("standby-launched-by-waits", [] {
    const std::shared_ptr<StandbyKernel> kernel = lasting_kernel();
    CHECK(kernel != nullptr);
    const Columns columns;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!kernel->alive() && std::chrono::steady_clock::now() < end) {
        CHECK(copy_pieces({columns.within_gpu(1)}) == Status::ok);
    }
    return kernel->alive() ? 0 : 2;
});

TEST_F(StandbyRowsTest, LaunchAKernelWhileAThreadWaitsForThem) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(launched_by_waits.run(), 0);
}

/** Of two copies of columns to the host the kernel serves the first one at most, and leaves.
 * `source(columns, i)`: what is copied for column i. 0, kTryAgain, or what failed. */
template <typename Source>
int leave_two_unserved(Source source) {
    setenv("SIMCUDA_SEED", "1", 1);
    setenv("SIMCUDA_DELAY_US", "3000", 1);  // up to three times as long, before and behind a copy
    const std::shared_ptr<StandbyKernel> kernel = fresh_kernel(kLong, kLong);
    CHECK(kernel != nullptr);
    const Columns columns;
    CHECK(awake(*kernel));
    CopyEngine engine;
    CopyTicket tickets[2];
    for (size_t i = 0; i < 2; ++i) {
        const CopyPiece piece = source(columns, i);
        const MemoryInfo info = query_memory(piece.source);
        if (engine.start(job_to_host(piece, info), &tickets[i]) != Status::in_progress ||
            tickets[i].batch->standby.end == 0) {
            return kTryAgain;
        }
    }
    reset_calls();
    const StandbyKernels::Absence no_kernel(20'000'000'000);
    CHECK(engine.wait(&tickets[0]) == Status::ok && engine.wait(&tickets[1]) == Status::ok);
    CHECK(columns.arrived(0) && columns.arrived(1));
    return calls("cuMemcpy2DAsync") > 0 ? 0 : kTryAgain;
}

FreshProcess left_unserved("standby-rows-left-unserved", [] {
    return leave_two_unserved([](const Columns &columns, size_t i) { return columns.to_host(i); });
});

TEST_F(StandbyRowsTest, AreCopiedByTheDriverIfTheKernelLeaves) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(run_until_it_counts(left_unserved), 0);
}

/** The two are read by way of blocks that stand for them. */
FreshProcess views_left_unserved("standby-views-left-unserved", [] {
    constexpr size_t kBytes = Columns::kRows * 8;
    std::deque<Buffer> blocks;  // allocated once the node of the driver is set
    return leave_two_unserved([&](const Columns &columns, size_t i) {
        const Buffer &block = blocks.emplace_back(MemoryKind::device, kBytes);
        add_row_source(block.data(), columns.rows(i));
        return CopyPiece{columns.to_host(i).destination, block.data(), kBytes};
    });
});

TEST_F(StandbyRowsTest, BehindBlocksAreCopiedByTheDriverIfTheKernelLeaves) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(run_until_it_counts(views_left_unserved), 0);
}

/** The last row is not in reach: the kernel would end the context. */
FreshProcess out_of_reach("standby-rows-out-of-reach", [] {
    const std::shared_ptr<StandbyKernel> kernel = lasting_kernel();
    CHECK(kernel != nullptr && awake(*kernel));
    const Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    const MemoryInfo info = query_memory(device.data());
    CopyEngine engine;
    const CopyPiece all_in_reach = {host.data(), device.data(), 8, {8, 8, 512}};
    if (!engine.is_left_to_standby(job_to_host(all_in_reach, info))) {
        return kernel->alive() ? 2 : kTryAgain;
    }
    CHECK(!engine.is_left_to_standby(
        job_to_host({host.data(), device.data(), 8, {9, 8, 512}}, info)));
    CHECK(!engine.is_left_to_standby(
        job_to_host({host.data(), device.data(), 8, {9, 512, 8}}, info)));
    CHECK(!engine.is_left_to_standby(
        job_to_host({host.data(), device.data(), 8, {2, 8, size_t{1} << 40}}, info)));
    return kernel->alive() ? 0 : kTryAgain;
});

TEST_F(StandbyRowsTest, AreForItOnlyWhereItReachesAllOfThem) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(run_until_it_counts(out_of_reach), 0);
}

}  // namespace
}  // namespace gpushm
