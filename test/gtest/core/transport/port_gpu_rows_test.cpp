// SPDX-License-Identifier: BSD-3-Clause
// Gets whose data lie in rows on either side (RowViews): by one copy, and if that is not possible
// through the block.
#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/core/transport/port_gpu_peer.hpp"
#include "test/gtest/core/transport/port_support.hpp"

#include "core/copy/row_packing.hpp"
#include "core/copy/row_views.hpp"
#include "core/kernels/kernel_image.hpp"

#include <cstring>
#include <string>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

struct Shape {
    size_t length, count, pitch;
    constexpr size_t bytes() const { return length * count; }
    size_t extent() const { return (count - 1) * pitch + length; }
};

constexpr Shape kVector = {512, 400, 1024};
constexpr Shape kBlock = {kVector.bytes(), 1, kVector.bytes()};
constexpr Shape kShapes[] = {kVector, kBlock, {512, 400, 513}, {1024, 200, 3000}, {8, 25600, 24}};

StridedRows rows_at(const unsigned char *address, const Shape &shape) {
    return {reinterpret_cast<uint64_t>(address), shape.length, shape.count, shape.pitch};
}

/** What is in rows, and back. */
std::vector<unsigned char> gathered(const std::vector<unsigned char> &memory, const Shape &shape) {
    std::vector<unsigned char> bytes(shape.bytes());
    for (size_t row = 0; row < shape.count; ++row) {
        memcpy(&bytes[row * shape.length], &memory[row * shape.pitch], shape.length);
    }
    return bytes;
}

void scatter(const std::vector<unsigned char> &bytes, const Shape &shape,
             std::vector<unsigned char> *memory) {
    for (size_t row = 0; row < shape.count; ++row) {
        memcpy(memory->data() + row * shape.pitch, &bytes[row * shape.length], shape.length);
    }
}

class PortGpuRows : public GpuTest {
protected:
    ~PortGpuRows() override {
        RowViews::instance().remove(block_.data());
        a_.destroy();
        b_.destroy();
    }

    Status get(const RemoteMemory &remote) {
        Outcome outcome;
        EXPECT_EQ(
            connection_.get(block_.data(), kVector.bytes(), remote, nullptr, outcome.completion()),
            Status::in_progress);
        EXPECT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
        return outcome.status;
    }

    TestPort a_{kMappingPort};
    TestPort b_{kMappingPort};
    Connection &connection_ = a_.connection(b_);
    Buffer block_{MemoryKind::device, kVector.bytes()};  // where a get says that it wants the data
};

TEST_F(PortGpuRows, DataGoFromRowsToRows) {
    uint64_t seed = 0;
    for (const Shape &from : kShapes) {
        for (const Shape &to : kShapes) {
            SCOPED_TRACE(std::to_string(from.length) + " to " + std::to_string(to.length));
            Buffer source(MemoryKind::device, from.extent());
            Buffer target(MemoryKind::device, to.extent());
            source.fill(++seed);
            target.fill(++seed);
            block_.fill(++seed);
            const std::vector<unsigned char> expected = gathered(read(source, from.extent()), from);
            std::vector<unsigned char> untouched = read(target, to.extent());
            const Registration registration(source.data(), from.extent());
            RemoteMemory remote = registration.named();
            remote.rows = rows_at(source.data(), from);
            RowViews::instance().add_destination(block_.data(), rows_at(target.data(), to));
            ASSERT_EQ(get(remote), Status::ok);
            // Rows of different lengths on both sides meet in the block.
            const bool filled = from.count == 1 || to.count == 1 || from.length == to.length;
            EXPECT_EQ(RowViews::instance().is_filled(block_.data()), filled);
            if (filled) {
                scatter(expected, to, &untouched);
                EXPECT_EQ(block_.check(0, kVector.bytes(), seed, 0), "");
            } else {
                EXPECT_EQ(read(block_, kVector.bytes()), expected);
            }
            EXPECT_EQ(read(target, to.extent()), untouched);
            RowViews::instance().remove(block_.data());
        }
    }
}

TEST_F(PortGpuRows, ByOneCopyOfTheCopyEngine) {
    SKIP_UNLESS_SIMULATED();
    Buffer source(MemoryKind::pinned, kVector.extent());
    Buffer target(MemoryKind::device, kVector.extent());
    Buffer elements(MemoryKind::device, kVector.extent());
    elements.fill(1);
    const Registration registration(elements.data(), kVector.extent());
    RemoteMemory remote = registration.named();
    remote.rows = rows_at(elements.data(), kVector);
    RowViews::instance().add_destination(block_.data(), rows_at(target.data(), kVector));
    ASSERT_EQ(get(remote), Status::ok);
    reset_calls();
    ASSERT_EQ(get(remote), Status::ok);
    EXPECT_EQ(calls("cuMemcpy2DAsync") + calls("cuLaunchKernel"), 1u);
    EXPECT_EQ(calls("cuMemcpyAsync"), 0u);
}

TEST_F(PortGpuRows, WithoutAWayItComesThroughTheBlocks) {
    Buffer elements(MemoryKind::device, kVector.extent());
    Buffer packed(MemoryKind::device, kVector.bytes());
    Buffer target(MemoryKind::device, kVector.extent());
    elements.fill(1);
    packed.fill(2);
    block_.fill(3);
    target.fill(4);
    const Registration registration(packed.data(), kVector.bytes());
    RemoteMemory remote = registration.at();  // of a buffer that has no name
    remote.rows = rows_at(elements.data(), kVector);
    add_row_source(packed.data(), remote.rows);
    RowViews::instance().add_destination(block_.data(), rows_at(target.data(), kVector));
    ASSERT_EQ(get(remote), Status::ok);
    EXPECT_FALSE(RowViews::instance().is_filled(block_.data()));
    EXPECT_EQ(read(block_, kVector.bytes()), gathered(read(elements, kVector.extent()), kVector));
    EXPECT_EQ(target.check(0, kVector.extent(), 4, 0), "");
    RowViews::instance().remove(packed.data());
}

TEST_F(PortGpuRows, AFailedCopyTakesTheOtherWay) {
    SKIP_UNLESS_SIMULATED();
    const LogCapture log;
    Buffer elements(MemoryKind::device, kVector.extent());
    Buffer packed(MemoryKind::device, kVector.bytes());
    Buffer target(MemoryKind::device, kVector.extent());
    elements.fill(1);
    const Registration registration(packed.data(), kVector.bytes());
    RemoteMemory remote = Registration(elements.data(), kVector.extent()).named();
    remote = {reinterpret_cast<uint64_t>(packed.data()), registration.at().registration,
              remote.buffer, 0, rows_at(elements.data(), kVector)};
    add_row_source(packed.data(), remote.rows);
    RowViews::instance().add_destination(block_.data(), rows_at(target.data(), kVector));
    set_simulation("SIMCUDA_FAIL", "cuMemcpy2DAsync:1:700,cuMemcpy2DAsync:1:700");
    EXPECT_EQ(get(remote), Status::ok);
    set_simulation("SIMCUDA_FAIL", "");
    const std::vector<unsigned char> expected = gathered(read(elements, kVector.extent()), kVector);
    EXPECT_EQ(RowViews::instance().is_filled(block_.data())
                  ? gathered(read(target, kVector.extent()), kVector)
                  : read(block_, kVector.bytes()),
              expected);
    RowViews::instance().remove(packed.data());
}

// ---------------------------------------------------------------- between processes

/** Until the peer's buffer is mapped here. */
bool map(Pair &pair, const RemoteMemory &memory, Buffer &block, size_t length) {
    for (int i = 0; i < 10000; ++i) {
        reset_calls();
        if (pair.get(block.data(), length, memory) != Status::ok) {
            return false;
        }
        if (pair.peer.calls("cuMemcpyAsync") == 0 && calls("cuMemcpyAsync") == 1) {
            return true;
        }
        pair.peer.reset_calls();
    }
    return false;
}

int rows_of_a_peer() {
    Pair pair(1);
    CHECK(pair.start());
    Buffer block(MemoryKind::device, kVector.bytes());
    Buffer mirror(MemoryKind::device, kVector.extent());
    RemoteMemory memory = pair.peer.allocate(kVector.extent());
    pair.peer.fill(5);
    mirror.fill(5);
    CHECK(map(pair, memory, block, kVector.bytes()));
    const std::vector<unsigned char> whole = contents_of(mirror, kVector.extent());
    memory.rows = {memory.address, kVector.length, kVector.count, kVector.pitch};
    CHECK(pair.get(block.data(), kVector.bytes(), memory) == Status::ok);
    CHECK(contents_of(block, kVector.bytes()) == gathered(whole, kVector));
    // Rows that leave the allocation, are not as many bytes, or of which the sum overflows: the
    // owner is asked.
    const StridedRows lies[] = {
        {memory.address + 1, kVector.length, kVector.count, kVector.pitch},
        {memory.address - 512, kVector.length, kVector.count, kVector.pitch},
        {memory.address, kVector.length, kVector.count, uint64_t{1} << 62},
        {memory.address, kVector.length, kVector.count - 1, kVector.pitch},
        {memory.address, kVector.length, (uint64_t{1} << 60) + kVector.count, kVector.pitch},
    };
    for (const StridedRows &lie : lies) {
        memory.rows = lie;
        block.fill(6);
        CHECK(pair.get(block.data(), kVector.bytes(), memory) == Status::ok);
        CHECK(contents_of(block, kVector.bytes()) ==
              std::vector<unsigned char>(whole.begin(), whole.begin() + kVector.bytes()));
    }
    return pair.peer.finish();
}

FreshProcess rows_of_a_peer_process("rows_of_a_peer", rows_of_a_peer);

TEST(PortGpuRowsOfAPeer, AreReadWithinItsAllocationOnly) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(rows_of_a_peer_process.run(), 0);
}

/** Whether rows of a peer on another GPU, which has the `contents` there, arrive by that call. */
bool come_by(const char *call, Pair &pair, RemoteMemory memory, const Shape &shape,
             const std::vector<unsigned char> &contents) {
    Buffer block(MemoryKind::device, shape.bytes());
    block.fill(8);
    memory.rows = {memory.address, shape.length, shape.count, shape.pitch};
    pair.peer.reset_calls();
    reset_calls();
    return pair.get(block.data(), shape.bytes(), memory) == Status::ok && calls(call) == 1 &&
           calls("cuMemcpy2DAsync") + calls("cuLaunchKernel") == 1 &&
           pair.peer.calls("cuMemcpy2DAsync") + pair.peer.calls("cuLaunchKernel") == 0 &&
           contents_of(block, shape.bytes()) == gathered(contents, shape);
}

int far_rows() {
    constexpr Shape kFar = {8, 1100, 16512};  // in 277 pages of 64 KiB
    constexpr Shape kNear = {8, 1100, 8208};
    Pair pair(1);
    CHECK(pair.start());
    CHECK(load_kernels(current_context()));
    Buffer block(MemoryKind::device, kFar.bytes());
    Buffer mirror(MemoryKind::device, kFar.extent());
    const RemoteMemory memory = pair.peer.allocate(kFar.extent());
    pair.peer.fill(7);
    mirror.fill(7);
    const std::vector<unsigned char> contents = contents_of(mirror, kFar.extent());
    CHECK(map(pair, memory, block, kFar.bytes()));
    CHECK(come_by("cuMemcpy2DAsync", pair, memory, kNear, contents));
    CHECK(come_by("cuLaunchKernel", pair, memory, kFar, contents));
    return pair.peer.finish();
}

FreshProcess far_rows_process("far_rows", far_rows);

TEST(PortGpuRowsOfAPeer, InManyPagesAreReadByAKernel) {
    SKIP_UNLESS_SIMULATED();
    if (kernel_fatbin().data == nullptr) {
        GTEST_SKIP() << "built without a CUDA compiler";
    }
    EXPECT_EQ(far_rows_process.run(), 0);
}

}  // namespace
}  // namespace gpushm
