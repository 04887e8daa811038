// SPDX-License-Identifier: BSD-3-Clause
// What the standby protocol takes for granted of CPU, bus and GPU: a unit is never seen in parts,
// what was written before it is seen with it, and the same on the way back. The writer here is the
// CPU, by the function that writes the standby kernel's units; the reader a warp that loads them as
// the standby kernel does, or another CPU that does what the warp does (test/simcuda/litmus.hpp).
#include "test/gtest/core/gpu_support.hpp"

#include "core/kernels/kernel_image.hpp"
#include "core/standby/standby_unit.hpp"
#include "test/simcuda/litmus.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <ostream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

namespace gpushm {
namespace {

using namespace test;
using simcuda::Litmus;
using simcuda::litmus_unit;
using simcuda::LitmusLane;
using simcuda::LitmusLine;
using simcuda::LitmusParameters;
using simcuda::LitmusReader;

constexpr std::chrono::seconds kPatience{20};
constexpr uint32_t kUnitLanes = simcuda::kLitmusLanes - 1;

// LitmusReader in PTX.
constexpr char kPtx[] = R"(
.version 6.4
.target sm_70
.address_size 64

.visible .entry simcuda_litmus(.param .align 8 .b8 parameters[16])
{
    .reg .pred %is, %first, %last;
    .reg .b32 %lane, %most, %number, %argument, %mixed, %inverse, %expected, %word, %before;
    .reg .b32 %torn, %stale, %backwards, %changes, %polls;
    .reg .b64 %litmus, %own, %unit, %line, %value, %rest, %whole, %address;

    ld.param.u64 %litmus, [parameters];
    ld.param.u32 %most, [parameters+8];
    mov.u32 %lane, %tid.x;
    setp.eq.u32 %first, %lane, 0;
    setp.eq.u32 %last, %lane, 31;
    mad.wide.u32 %own, %lane, 64, %litmus;
    ld.global.v2.u64 {%unit, %line}, [%own];
    mov.u32 %before, 0;
    mov.u32 %torn, 0;
    mov.u32 %stale, 0;
    mov.u32 %backwards, 0;
    mov.u32 %changes, 0;
    mov.u32 %polls, 0;
poll:
    ld.acquire.sys.global.v2.u64 {%value, %rest}, [%unit];
    mov.b64 {%argument, %number}, %rest;
    mul.lo.u32 %mixed, %number, 2654435761;
    not.b32 %inverse, %mixed;
    mov.b64 %whole, {%inverse, %mixed};
    xor.b32 %expected, %mixed, 0x5555aaaa;
    setp.ne.u64 %is, %value, %whole;
    setp.ne.or.u32 %is, %argument, %expected, %is;
    @%is bra torn;

    and.b32 %word, %number, 15;
    mad.wide.u32 %address, %word, 4, %line;
    ld.global.cv.u32 %word, [%address];
    setp.lt.u32 %is, %word, %number;
    @%is add.u32 %stale, %stale, 1;
    setp.lt.u32 %is, %number, %before;
    @%is add.u32 %backwards, %backwards, 1;
    setp.ne.u32 %is, %number, %before;
    @%is add.u32 %changes, %changes, 1;
    mov.u32 %before, %number;
    bra report;
torn:
    add.u32 %torn, %torn, 1;
report:
    add.u32 %polls, %polls, 1;
    st.global.wt.v4.u32 [%own+16], {%torn, %stale, %backwards, %changes};
    st.global.wt.u32 [%own+32], %polls;
    bar.warp.sync 0xffffffff;
    @%first st.release.sys.global.u32 [%litmus+2048], %polls;
    setp.ne.and.u32 %is, %before, 0, %last;
    setp.ge.or.u32 %is, %polls, %most, %is;
    vote.sync.any.pred %is, %is, 0xffffffff;
    @!%is bra poll;
    ret;
}
)";

/** Which units the lanes look at: lane n at unit first + n * stride of the ring. */
struct Layout {
    const char *name;
    uint32_t first;
    uint32_t stride;
};

constexpr Layout kWindow = {"Window", 0, 1};
constexpr Layout kLayouts[] = {
    kWindow,
    {"WindowFromTheEndOfALine", 3, 1},
    {"WindowOverTheEndOfTheRing", simcuda::kLitmusUnits - 15, 1},
    {"LastUnitsOfLinesOf64Bytes", 3, 4},
    {"LastUnitsOfLinesOf128Bytes", 7, 8},
    {"OneUnit", 3, 0},
};

void PrintTo(const Layout &layout, std::ostream *stream) {
    *stream << layout.name;
}

enum class Reader { gpu, cpu };

const char *to_string(Reader reader) {
    return reader == Reader::gpu ? "Gpu" : "Cpu";
}

void PrintTo(Reader reader, std::ostream *stream) {
    *stream << to_string(reader);
}

void write_line(LitmusLine &line, uint32_t number) {
    for (uint32_t &word : line.words) {
        word = number;
    }
}

/** The sum of all lanes. */
uint32_t sum(const Litmus &litmus, uint32_t simcuda::LitmusReport::*count) {
    uint32_t all = 0;
    for (const LitmusLane &lane : litmus.lanes) {
        all += __atomic_load_n(&(lane.report.*count), __ATOMIC_RELAXED);
    }
    return all;
}

/** Of the lane that has seen the fewest. */
uint32_t fewest_changes(const Litmus &litmus) {
    uint32_t fewest = UINT32_MAX;
    for (uint32_t i = 0; i < kUnitLanes; ++i) {
        fewest =
            std::min(fewest, __atomic_load_n(&litmus.lanes[i].report.changes, __ATOMIC_RELAXED));
    }
    return fewest;
}

uint32_t polls_done(const Litmus &litmus) {
    return __atomic_load_n(&litmus.done, __ATOMIC_ACQUIRE);
}

/** Lanes whose report of the last of so many polls is not there. */
uint32_t missing_reports(const Litmus &litmus, uint32_t polls) {
    uint32_t missing = 0;
    for (const LitmusLane &lane : litmus.lanes) {
        missing += __atomic_load_n(&lane.report.polls, __ATOMIC_RELAXED) < polls ? 1 : 0;
    }
    return missing;
}

template <typename Condition>
bool await(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) {
            return false;
        }
    }
    return true;
}

/** The reader, at work while it lives. */
class Reading {
public:
    Reading(Reader reader, Litmus &litmus) : litmus_(litmus) {
        const LitmusParameters parameters = {&litmus, kMaxPolls};
        if (reader == Reader::gpu) {
            launch(parameters);
        } else {
            thread_ = std::thread([parameters] {
                for (LitmusReader cpu(parameters); cpu.poll();) {
                    std::this_thread::yield();
                }
            });
        }
    }
    ~Reading() { end(); }
    Reading(const Reading &) = delete;
    Reading &operator=(const Reading &) = delete;

    void end() {
        write_line(litmus_.stop_line, 1);
        store_unit(litmus_.stop, litmus_unit(1));
        if (thread_.joinable()) {
            thread_.join();
        }
        if (stream_ != nullptr) {
            EXPECT_EQ(CudaDriver::get()->stream_synchronize(stream_), CUDA_SUCCESS);
            CudaDriver::get()->stream_destroy(stream_);
            stream_ = nullptr;
        }
    }

private:
    /** A GPU takes some us for a poll: it leaves by itself though the test has died. */
    static constexpr uint32_t kMaxPolls = 20'000'000;

    void launch(LitmusParameters parameters) {
        const CudaDriver &cuda = *CudaDriver::get();
        CUmodule module = nullptr;  // goes with the context
        CUfunction function = nullptr;
        void *arguments[] = {&parameters};
        ASSERT_EQ(cuda.module_load_data(&module, kPtx), CUDA_SUCCESS);
        ASSERT_EQ(cuda.module_get_function(&function, module, simcuda::kLitmusKernelName),
                  CUDA_SUCCESS);
        ASSERT_EQ(cuda.stream_create(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        ASSERT_EQ(cuda.launch_kernel(function, 1, 1, 1, simcuda::kLitmusLanes, 1, 1, 0, stream_,
                                     arguments, nullptr),
                  CUDA_SUCCESS);
    }

    Litmus &litmus_;
    std::thread thread_;
    CUstream stream_ = nullptr;
};

class LitmusTest : public GpuTest {
protected:
    /** Why the reader cannot be had here; null if it can. */
    const char *obstacle(Reader reader) const {
        if (!units_are_whole()) {
            return "this build has no stores or loads of 16 bytes";
        }
        int major = 0;
        cuda_.device_get_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
        const bool has_kernel = cuda_.has_kernels() && major >= 7;
        return reader == Reader::gpu && !has_kernel ? "the GPU or its driver runs no such kernel"
                                                    : nullptr;
    }

    void lay_out(const Layout &layout) {
        litmus_ = new (memory_.data()) Litmus{};
        std::fill(std::begin(litmus_->units), std::end(litmus_->units), litmus_unit(0));
        litmus_->stop = litmus_unit(0);
        for (uint32_t i = 0; i < kUnitLanes; ++i) {
            const uint32_t unit = (layout.first + i * layout.stride) % simcuda::kLitmusUnits;
            units_[i] = &litmus_->units[unit];
            lines_[i] = &litmus_->lines[unit];
            litmus_->lanes[i].unit = units_[i];
            litmus_->lanes[i].line = lines_[i];
        }
        litmus_->lanes[kUnitLanes].unit = &litmus_->stop;
        litmus_->lanes[kUnitLanes].line = &litmus_->stop_line;
    }

    /** Overwrites all units, as fast as it can, until the reader has seen enough. Returns how many
     * reports were missing meanwhile. */
    uint32_t overwrite_units() {
        const uint32_t rounds = simulated() ? 100'000 : 500'000;
        const auto end = std::chrono::steady_clock::now() + kPatience;
        uint32_t missing = 0;
        uint32_t polls = 0;
        uint32_t number = 0;
        for (uint32_t round = 1;; ++round) {
            for (uint32_t i = 0; i < kUnitLanes; ++i) {
                write_line(*lines_[i], ++number);
                store_unit(*units_[i], litmus_unit(number));
            }
            const uint32_t polls_before = std::exchange(polls, polls_done(*litmus_));
            missing += polls != polls_before ? missing_reports(*litmus_, polls) : 0;
            const bool enough = round >= rounds && fewest_changes(*litmus_) >= kMinChanges;
            if (enough || std::chrono::steady_clock::now() > end) {
                return missing;
            }
            if (round % kRoundsAtATime == 0) {
                std::this_thread::yield();  // to a reader on the same processor
            }
        }
    }

    static constexpr uint32_t kRoundsAtATime = 256;
    static constexpr uint32_t kMinChanges = 200;  // of each unit

    Buffer memory_{MemoryKind::pinned, sizeof(Litmus)};
    Litmus *litmus_ = nullptr;
    StandbyUnit *units_[kUnitLanes];
    LitmusLine *lines_[kUnitLanes];
};

class OverwrittenUnits : public LitmusTest,
                         public testing::WithParamInterface<std::tuple<Reader, Layout>> {};

TEST_P(OverwrittenUnits, AreSeenWholeAndInOrder) {
    const auto &[reader, layout] = GetParam();
    if (const char *reason = obstacle(reader)) {
        GTEST_SKIP() << reason;
    }
    lay_out(layout);
    Reading reading(reader, *litmus_);
    const uint32_t missing = overwrite_units();
    reading.end();
    EXPECT_GE(fewest_changes(*litmus_), kMinChanges) << "nothing new was seen";
    EXPECT_EQ(sum(*litmus_, &simcuda::LitmusReport::torn), 0u);
    EXPECT_EQ(sum(*litmus_, &simcuda::LitmusReport::stale), 0u);
    EXPECT_EQ(sum(*litmus_, &simcuda::LitmusReport::backwards), 0u);
    EXPECT_EQ(missing, 0u);
    RecordProperty("polls", std::to_string(litmus_->done));
}

INSTANTIATE_TEST_SUITE_P(Litmus, OverwrittenUnits,
                         testing::Combine(testing::Values(Reader::gpu, Reader::cpu),
                                          testing::ValuesIn(kLayouts)),
                         [](const auto &info) {
                             return std::string(to_string(std::get<0>(info.param))) +
                                    std::get<1>(info.param).name;
                         });

/** A writer that does one thing wrong, and goes on when that was seen: the test above can fail. */
class WrongWriter : public LitmusTest, public testing::WithParamInterface<Reader> {
protected:
    void SetUp() override {
        if (const char *reason = obstacle(GetParam())) {
            GTEST_SKIP() << reason;
        }
        lay_out(kWindow);
    }

    bool await_count(uint32_t simcuda::LitmusReport::*count) {
        return await([&] { return sum(*litmus_, count) > 0; });
    }
};

TEST_P(WrongWriter, TearsAUnit) {
    Reading reading(GetParam(), *litmus_);
    const StandbyUnit unit = litmus_unit(1);
    write_line(*lines_[5], 1);
    __atomic_store_n(&units_[5]->word, unit.word, __ATOMIC_RELEASE);
    EXPECT_TRUE(await_count(&simcuda::LitmusReport::torn));
    uint64_t half;
    memcpy(&half, &unit.argument, sizeof(half));
    __atomic_store_n(reinterpret_cast<uint64_t *>(&units_[5]->argument), half, __ATOMIC_RELEASE);
    EXPECT_TRUE(await_count(&simcuda::LitmusReport::changes)) << "the unit is never whole again";
}

TEST_P(WrongWriter, WritesDataAfterItsUnit) {
    Reading reading(GetParam(), *litmus_);
    store_unit(*units_[5], litmus_unit(1));
    EXPECT_TRUE(await_count(&simcuda::LitmusReport::stale));
    write_line(*lines_[5], 1);
}

TEST_P(WrongWriter, GoesBack) {
    Reading reading(GetParam(), *litmus_);
    write_line(*lines_[5], 2);
    store_unit(*units_[5], litmus_unit(2));
    ASSERT_TRUE(await_count(&simcuda::LitmusReport::changes));
    store_unit(*units_[5], litmus_unit(1));
    EXPECT_TRUE(await_count(&simcuda::LitmusReport::backwards));
}

INSTANTIATE_TEST_SUITE_P(Litmus, WrongWriter, testing::Values(Reader::gpu, Reader::cpu),
                         [](const auto &info) { return std::string(to_string(info.param)); });

using LitmusReports = LitmusTest;

TEST_F(LitmusReports, AreMissedWhereDoneComesBeforeThem) {
    lay_out(kWindow);
    for (LitmusLane &lane : litmus_->lanes) {
        lane.report.polls = 2;
    }
    litmus_->lanes[7].report.polls = 1;
    EXPECT_EQ(missing_reports(*litmus_, 1), 0u);
    EXPECT_EQ(missing_reports(*litmus_, 2), 1u);
}

/** The accesses that this test tests are those of the standby kernel. */
TEST(LitmusKernel, AccessesMemoryAsTheStandbyKernelDoes) {
    if (kernel_ptx().data == nullptr) {
        GTEST_SKIP() << "built without a CUDA compiler";
    }
    const std::string product(reinterpret_cast<const char *>(kernel_ptx().data));
    for (const std::string instruction :
         {"ld.acquire.sys.global.v2.u64 ", "st.release.sys.global.u32 ", "ld.global.cv.",
          "st.global.wt.", "bar.warp.sync"}) {
        EXPECT_NE(std::string(kPtx).find(instruction), std::string::npos) << instruction;
        EXPECT_NE(product.find(instruction), std::string::npos) << instruction;
    }
}

}  // namespace
}  // namespace gpushm
