// SPDX-License-Identifier: BSD-3-Clause
// Copies and memsets that return before they are done: whoever asks for the memory of a message
// finds them done.
#include "core/cuda/driver_watch.hpp"
#include "core/cuda/unfinished_copies.hpp"
#include "core/hooks/driver_hooks.hpp"
#include "core/memory/memory_query.hpp"
#include "uct_gpushm/abi/abi.hpp"

#include "test/gtest/uct_gpushm/abi/component.hpp"
#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/core/hooks/hooks_support.hpp"
#include "test/simcuda/fill_calls.hpp"
#include "test/simcuda/virtual_memory.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace {

using gpushm::query_memory;
using std::chrono::milliseconds;

constexpr milliseconds kSoon{30};

const void *pointer(CUdeviceptr address) {
    return reinterpret_cast<const void *>(address);
}

class HooksEarlyReturns : public DriverTest {
protected:
    void SetUp() override {
#if !defined(__x86_64__)
        GTEST_SKIP() << "not every libucm can";
#endif
        std::string reason;
        if (!load_driver(&reason)) {
            GTEST_SKIP() << reason;
        }
        DriverTest::SetUp();
        ASSERT_TRUE(gpushm::test::install_all_hooks());
        ASSERT_TRUE(gpushm::early_returns_are_noted());
    }

    /** As a message does that meets them. */
    static void meet(const DeviceMemory &memory) {
        query_memory(pointer(memory.address()));
    }

    const Bytes data_ = fresh_bytes(FillBuffers::kBytes);
    const Bytes before_ = fresh_bytes(FillBuffers::kBytes);
};

// ---------------------------------------------------------------- each call

class HooksEarlyReturnsOf : public HooksEarlyReturns,
                            public testing::WithParamInterface<std::tuple<FillCall, bool>> {
protected:
    static bool of_thread() { return std::get<1>(GetParam()); }
    static const FillCall &fill() { return std::get<0>(GetParam()); }
    CUresult run(CUdeviceptr to, CUdeviceptr from) const {
        void *const function =
            cu().find_symbol(fill().symbol + (of_thread() ? fill().per_thread_form : ""));
        return function == nullptr ? CUDA_ERROR_NOT_FOUND
                                   : fill().run(function, {to, from, context_}, nullptr);
    }

    /** Holds the default stream back, without what LegacyGate leaves in the legacy one. */
    void hold_back(Gate *gate) {
        if (of_thread()) {
            gate->close(CU_STREAM_PER_THREAD);
            return;
        }
        gate->close(other_stream_);
        ASSERT_CU(cu().cuEventRecord(other_event_, other_stream_));
        ASSERT_CU(cu().cuStreamWaitEvent(CU_STREAM_LEGACY, other_event_, 0));
    }

    /** The memory that a message is about to be made of after the call. */
    void expect_to_be_done_for(CUdeviceptr to, CUdeviceptr from, CUdeviceptr message) {
        Onlooker onlooker(FillBuffers::kBytes);
        Gate gate;
        hold_back(&gate);
        ASSERT_CU(run(to, from));
        ASSERT_FALSE(gate.opened()) << "the call waited";
        gate.open_later(kSoon);
        query_memory(pointer(message));
        EXPECT_TRUE(gate.opened()) << "the message did not wait";
        EXPECT_EQ(fill().expected(data_), onlooker.look(to));
    }

    void SetUp() override {
        HooksEarlyReturns::SetUp();
        if (!IsSkipped() && !HasFatalFailure()) {
            ASSERT_CU(cu().cuStreamCreate(&other_stream_, CU_STREAM_NON_BLOCKING));
            ASSERT_CU(cu().cuEventCreate(&other_event_, CU_EVENT_DISABLE_TIMING));
        }
    }
    void TearDown() override {
        if (other_stream_ != nullptr) {
            cu().cuStreamDestroy(other_stream_);
            cu().cuEventDestroy(other_event_);
        }
        HooksEarlyReturns::TearDown();
    }

    CUstream other_stream_ = nullptr;
    CUevent other_event_ = nullptr;
};

TEST_P(HooksEarlyReturnsOf, IsDoneForAMessageOfWhatItWrites) {
    DeviceMemory from(data_);
    DeviceMemory to(before_);
    meet(to);
    meet(from);
    expect_to_be_done_for(to.address(), from.address(), to.address());
}

class HooksEarlyCopies : public HooksEarlyReturnsOf {};

TEST_P(HooksEarlyCopies, AreDoneForAMessageIntoWhatTheyRead) {
    DeviceMemory from(data_);
    DeviceMemory to(before_);
    meet(from);
    expect_to_be_done_for(to.address(), from.address(), from.address());
}

TEST_P(HooksEarlyReturnsOf, IsDoneForTheFirstMessageOfItsMemory) {
    DeviceMemory from(data_);
    DeviceMemory to(before_);
    expect_to_be_done_for(to.address(), from.address(), to.address());
}

std::vector<FillCall> synchronous_calls(bool copies_only) {
    std::vector<FillCall> calls;
    for (const FillCall &call : fill_calls()) {
        if (call.synchronous() && (call.pattern.empty() || !copies_only)) {
            calls.push_back(call);
        }
    }
    return calls;
}

const auto name_of = [](const auto &info) {
    return std::get<0>(info.param).name() + (std::get<1>(info.param) ? "_of_thread" : "");
};
INSTANTIATE_TEST_SUITE_P(, HooksEarlyReturnsOf,
                         testing::Combine(testing::ValuesIn(synchronous_calls(false)),
                                          testing::Bool()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(, HooksEarlyCopies,
                         testing::Combine(testing::ValuesIn(synchronous_calls(true)),
                                          testing::Bool()),
                         name_of);

// ---------------------------------------------------------------- other memory

class HooksEarlyMemset : public HooksEarlyReturns {
protected:
    /** Held back by `gate`. */
    void fill_late(CUdeviceptr memory) {
        ASSERT_CU(cu().cuMemsetD8(memory, kByte, FillBuffers::kBytes));
    }

    static constexpr unsigned char kByte = 0xa7;
    const Bytes filled_ = Bytes(FillBuffers::kBytes, kByte);
};

TEST_F(HooksEarlyMemset, OfManagedMemoryIsDone) {
    ManagedMemory memory(FillBuffers::kBytes);
    query_memory(memory.data());
    LegacyGate legacy;
    fill_late(memory.address());
    legacy.gate.open_later(kSoon);
    query_memory(memory.data());
    EXPECT_TRUE(legacy.gate.opened());
    EXPECT_EQ(memory.data()[FillBuffers::kBytes - 1], kByte);
}

TEST_F(HooksEarlyMemset, OfMemoryOfAPoolIsDone) {
    Stream stream;
    CUdeviceptr memory = 0;
    ASSERT_CU(cu().cuMemAllocAsync(&memory, FillBuffers::kBytes, stream));
    ASSERT_CU(cu().cuStreamSynchronize(stream));
    query_memory(pointer(memory));
    {
        Onlooker onlooker(FillBuffers::kBytes);
        LegacyGate legacy;
        fill_late(memory);
        legacy.gate.open_later(kSoon);
        query_memory(pointer(memory));
        EXPECT_TRUE(legacy.gate.opened());
        EXPECT_EQ(filled_, onlooker.look(memory));
    }
    ASSERT_CU(cu().cuMemFreeAsync(memory, stream));
}

/** Reserved addresses with two mappings: a call on the whole begins in the first one and ends in
 * the second one. The driver reports the reservation as one allocation. */
class HooksEarlyCallsOnTwoMappings : public HooksEarlyReturns {
protected:
    void SetUp() override {
        HooksEarlyReturns::SetUp();
        if (IsSkipped() || HasFatalFailure()) {
            return;
        }
        unit_ = granularity();
        memory_ = std::make_unique<VirtualMemory>(2 * unit_);
        memory_->add(unit_, true);
        memory_->add(unit_, true);
        query_memory(pointer(first()));
        query_memory(pointer(second()));
    }
    void TearDown() override {
        memory_.reset();
        HooksEarlyReturns::TearDown();
    }
    CUdeviceptr first() const { return memory_->address(); }
    CUdeviceptr second() const { return memory_->address() + unit_; }

    /** `call` is made while the default stream is held back. */
    void expect_done_for_the_second(const std::function<CUresult()> &call) {
        LegacyGate legacy;
        ASSERT_CU(call());
        ASSERT_FALSE(legacy.gate.opened()) << "the call waited";
        legacy.gate.open_later(kSoon);
        query_memory(pointer(second()));
        EXPECT_TRUE(legacy.gate.opened()) << "the message did not wait";
    }

    size_t unit_ = 0;
    std::unique_ptr<VirtualMemory> memory_;
};

TEST_F(HooksEarlyCallsOnTwoMappings, MemsetIsDone) {
    expect_done_for_the_second([&] { return cu().cuMemsetD8(first(), 1, 2 * unit_); });
}

TEST_F(HooksEarlyCallsOnTwoMappings, MemsetOfRowsIsDone) {
    expect_done_for_the_second(
        [&] { return cu().cuMemsetD2D8(first(), 4096, 1, 4096, 2 * unit_ / 4096); });
}

/** One row in each of two allocations, a third one between. A copy of one piece would write there,
 * and what it writes is noted by its ends. */
TEST_F(HooksEarlyReturns, OfSeveralAllocationsIsDoneForEach) {
    SKIP_UNLESS_SIMULATED();
    DeviceMemory from(data_);
    DeviceMemory memory[] = {DeviceMemory(before_), DeviceMemory(before_), DeviceMemory(before_)};
    std::array<CUdeviceptr, 3> addresses;
    for (size_t i = 0; i < addresses.size(); ++i) {
        addresses[i] = memory[i].address();
        meet(memory[i]);
    }
    std::sort(addresses.begin(), addresses.end());
    const auto [lower, middle, upper] = addresses;
    for (const CUdeviceptr address : {lower, middle, upper}) {
        CUDA_MEMCPY3D_PEER rows{};
        rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        rows.srcDevice = from.address();
        rows.dstDevice = lower;
        rows.srcContext = rows.dstContext = context_;
        rows.dstPitch = upper - lower;
        rows.WidthInBytes = 4096;
        rows.srcHeight = rows.dstHeight = rows.Height = 2;
        rows.Depth = 1;
        LegacyGate legacy;
        ASSERT_CU(cu().cuMemcpy3DPeer(&rows));
        ASSERT_FALSE(legacy.gate.opened()) << "the call waited";
        legacy.gate.open_later(kSoon);
        query_memory(pointer(address));
        EXPECT_TRUE(legacy.gate.opened()) << "the message did not wait";
        ASSERT_CU(cu().cuCtxSynchronize());
    }
}

TEST_F(HooksEarlyReturns, OfPageableMemoryIsDone) {
    DeviceMemory to(before_);
    meet(to);
    Onlooker onlooker(FillBuffers::kBytes);
    // The driver has read the source when the call returns; there is no gate, for it waits for the
    // stream before.
    ASSERT_CU(cu().cuMemcpyHtoD(to.address(), data_.data(), data_.size()));
    query_memory(pointer(to.address()));
    EXPECT_EQ(data_, onlooker.look(to.address()));
}

TEST_F(HooksEarlyMemset, IsWaitedForInOtherThreads) {
    DeviceMemory memory(before_);
    meet(memory);
    Onlooker onlooker(FillBuffers::kBytes);
    LegacyGate legacy;
    fill_late(memory.address());
    legacy.gate.open_later(kSoon);
    std::thread other([&] {
        query_memory(pointer(memory.address()));
        EXPECT_TRUE(legacy.gate.opened());
    });
    other.join();
    EXPECT_EQ(filled_, onlooker.look(memory.address()));
}

/** The hooks come when a program initialises MPI, which may use its GPU already. */
gpushm::test::FreshProcess early_memset("memset-before-the-hooks", [] {
    std::string reason;
    CUcontext context = nullptr;
    CHECK(load_driver(&reason) && start_cuda(0, &context));
    DeviceMemory memory(FillBuffers::kBytes);
    LegacyGate legacy;
    CHECK(cu().cuMemsetD8(memory.address(), 1, FillBuffers::kBytes) == CUDA_SUCCESS);
    CHECK(gpushm::test::install_all_hooks() && gpushm::early_returns_are_noted());
    CHECK(!legacy.gate.opened());
    legacy.gate.open_later(kSoon);
    query_memory(pointer(memory.address()));
    CHECK(legacy.gate.opened());
    return 0;
});

TEST_F(HooksEarlyMemset, BeforeTheHooksIsDone) {
    EXPECT_EQ(early_memset.run(), 0);
}

/** Beside a UCX with CUDA: there nothing covers what is noted, so nothing is. */
gpushm::test::FreshProcess host_hooks_alone("copy-with-hooks-of-host-memory-alone", [] {
    std::string reason;
    CUcontext context = nullptr;
    CHECK(load_driver(&reason) && start_cuda(0, &context));
    CHECK(abi_test::register_test_component() &&
          gpushm::watch_host_memory(gpushm::abi::patch_function));
    DeviceMemory from(FillBuffers::kBytes);
    DeviceMemory to(FillBuffers::kBytes);
    DeviceMemory other(FillBuffers::kBytes);
    LegacyGate legacy;
    CHECK(cu().cuMemcpy(to.address(), from.address(), FillBuffers::kBytes) == CUDA_SUCCESS);
    query_memory(pointer(other.address()));
    CHECK(!legacy.gate.opened());
    return 0;
});

TEST_F(HooksEarlyReturns, AreNotWaitedForWhereTheyAreNotNoted) {
    EXPECT_EQ(host_hooks_alone.run(), 0);
}

// ---------------------------------------------------------------- what is not waited for

/** What the program starts behind a memset: it ends when the gate opens. */
struct Behind {
    const char *name;
    std::function<void(Gate *)> start;
};

class HooksBehindEarlyMemset : public HooksEarlyMemset,
                               public testing::WithParamInterface<Behind> {};

TEST_P(HooksBehindEarlyMemset, IsNotWaitedFor) {
    DeviceMemory memory(before_);
    meet(memory);
    Onlooker onlooker(FillBuffers::kBytes);
    Gate gate;
    fill_late(memory.address());
    GetParam().start(&gate);
    query_memory(pointer(memory.address()));
    EXPECT_FALSE(gate.opened()) << "the message waited";
    EXPECT_EQ(filled_, onlooker.look(memory.address()));
    gate.open();
    ASSERT_CU(cu().cuCtxSynchronize());
}

void wait_for_gate(void *gate) {
    while (!static_cast<Gate *>(gate)->opened()) {
        std::this_thread::yield();
    }
}

const Behind kBehind[] = {
    {"AHostFunction",
     [](Gate *gate) { EXPECT_CU(cu().cuLaunchHostFunc(CU_STREAM_LEGACY, wait_for_gate, gate)); }},
    {"AHostFunctionOfABlockingStream",
     [](Gate *gate) {
         static Stream *const stream = new Stream(CU_STREAM_DEFAULT);
         EXPECT_CU(cu().cuLaunchHostFunc(*stream, wait_for_gate, gate));
     }},
    {"AValue",
     [](Gate *gate) {
         static Stream *const stream = new Stream(CU_STREAM_DEFAULT);
         gate->close(*stream);
     }},
    {"AnEvent",
     [](Gate *gate) {
         static Stream *const stream = new Stream(CU_STREAM_NON_BLOCKING);
         static Event *const event = new Event;
         gate->close(*stream);
         EXPECT_CU(cu().cuEventRecord(*event, *stream));
         EXPECT_CU(cu().cuStreamWaitEvent(CU_STREAM_LEGACY, *event, 0));
     }},
};
INSTANTIATE_TEST_SUITE_P(, HooksBehindEarlyMemset, testing::ValuesIn(kBehind),
                         [](const auto &info) { return info.param.name; });

unsigned long calls_that_look() {
    unsigned long sum = 0;
    for (const char *function : {"cuEventRecord", "cuEventQuery", "cuEventSynchronize",
                                 "cuStreamQuery", "cuStreamSynchronize"}) {
        sum += gpushm::test::calls(function);
    }
    return sum;
}

/** A wait of the program that covers what it has copied. */
struct Cover {
    const char *name;
    std::function<CUresult()> wait;
    unsigned long calls;  // of calls_that_look()
};

class HooksCoveredMemset : public HooksEarlyMemset, public testing::WithParamInterface<Cover> {};

TEST_P(HooksCoveredMemset, CostsTheNextMessageNoCallOfTheDriver) {
    if (!gpushm::test::simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    DeviceMemory memory(before_);
    meet(memory);
    gpushm::test::reset_calls();
    for (int i = 0; i < 4; ++i) {
        fill_late(memory.address());
    }
    ASSERT_CU(GetParam().wait());
    query_memory(pointer(memory.address()));
    EXPECT_EQ(calls_that_look(), GetParam().calls);
}

const Cover kCovers[] = {
    {"Context", [] { return cu().cuCtxSynchronize(); }, 0},
    {"NamedContext",
     [] {
         CUcontext context = nullptr;
         cu().cuCtxGetCurrent(&context);
         const auto wait =
             reinterpret_cast<CUresult (*)(CUcontext)>(cu().find_symbol("cuCtxSynchronize_v2"));
         return wait == nullptr ? cu().cuCtxSynchronize() : wait(context);
     },
     0},
    {"NullStream", [] { return cu().cuStreamSynchronize(nullptr); }, 1},
    {"LegacyStream", [] { return cu().cuStreamSynchronize(CU_STREAM_LEGACY); }, 1},
};
INSTANTIATE_TEST_SUITE_P(, HooksCoveredMemset, testing::ValuesIn(kCovers),
                         [](const auto &info) { return info.param.name; });

TEST_F(HooksEarlyMemset, IsNotCoveredByAWaitForAnotherStream) {
    DeviceMemory memory(before_);
    meet(memory);
    Onlooker onlooker(FillBuffers::kBytes);
    Stream other;
    LegacyGate legacy;
    fill_late(memory.address());
    ASSERT_CU(cu().cuStreamSynchronize(other));
    ASSERT_CU(cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
    legacy.gate.open_later(kSoon);
    query_memory(pointer(memory.address()));
    EXPECT_TRUE(legacy.gate.opened());
    EXPECT_EQ(filled_, onlooker.look(memory.address()));
}

TEST_F(HooksEarlyMemset, ThatIsMadeDuringAWaitIsNotCoveredByIt) {
    DeviceMemory memory(before_);
    meet(memory);
    Onlooker onlooker(FillBuffers::kBytes);
    fill_late(memory.address());
    gpushm::UnfinishedCopies::Wait wait;
    LegacyGate legacy;
    ASSERT_CU(cu().cuMemsetD8(memory.address(), 1, FillBuffers::kBytes));
    wait.end();
    legacy.gate.open_later(kSoon);
    query_memory(pointer(memory.address()));
    EXPECT_TRUE(legacy.gate.opened());
    EXPECT_EQ(Bytes(FillBuffers::kBytes, 1), onlooker.look(memory.address()));
}

TEST_F(HooksEarlyMemset, OfMemoryThatNoMessageHasMetHoldsUpNoMessageOfOther) {
    DeviceMemory met(before_);
    DeviceMemory not_met(before_);
    meet(met);
    LegacyGate legacy;
    fill_late(not_met.address());
    query_memory(pointer(met.address()));
    EXPECT_FALSE(legacy.gate.opened()) << "the message waited";
}

TEST_F(HooksEarlyMemset, OfOurOwnIsNotNoted) {
    DeviceMemory memory(before_);
    meet(memory);
    LegacyGate legacy;
    {
        const gpushm::OwnCopies own;
        fill_late(memory.address());
    }
    query_memory(pointer(memory.address()));
    EXPECT_FALSE(legacy.gate.opened()) << "the message waited";
}

TEST_F(HooksEarlyMemset, ThatFailsIsNotNoted) {
    DeviceMemory memory(before_);
    meet(memory);
    LegacyGate legacy;
    EXPECT_NE(CUDA_SUCCESS, cu().cuMemsetD8(memory.address() + (size_t{1} << 45), 1, 100));
    query_memory(pointer(memory.address()));
    EXPECT_FALSE(legacy.gate.opened()) << "the message waited";
}

/** A kernel is behind the memset, and behind it a memset of memory of which there is no message,
 * and another kernel. */
TEST_F(HooksEarlyMemset, IsCoveredByItsOwnEventAlone) {
    DeviceMemory met(before_);
    DeviceMemory not_met(before_);
    meet(met);
    Onlooker onlooker(FillBuffers::kBytes);
    Gate gate;
    fill_late(met.address());
    EXPECT_CU(cu().cuLaunchHostFunc(CU_STREAM_LEGACY, wait_for_gate, &gate));
    fill_late(not_met.address());
    EXPECT_CU(cu().cuLaunchHostFunc(CU_STREAM_LEGACY, wait_for_gate, &gate));
    query_memory(pointer(met.address()));
    EXPECT_FALSE(gate.opened()) << "the message waited";
    EXPECT_EQ(filled_, onlooker.look(met.address()));
    gate.open();
    ASSERT_CU(cu().cuCtxSynchronize());
}

TEST_F(HooksEarlyMemset, HoldsUpNoMessageOfOtherMemory) {
    DeviceMemory filled(before_);
    DeviceMemory other(before_);
    meet(filled);
    meet(other);
    LegacyGate legacy;
    fill_late(filled.address());
    query_memory(pointer(other.address()));
    EXPECT_FALSE(legacy.gate.opened()) << "the message waited";
}

TEST_F(HooksEarlyMemset, OfManyAllocationsAreAllDone) {
    std::vector<std::unique_ptr<DeviceMemory>> memories;
    for (int i = 0; i < 40; ++i) {  // more than are told apart
        memories.push_back(std::make_unique<DeviceMemory>(before_));
        meet(*memories.back());
    }
    Onlooker onlooker(FillBuffers::kBytes);
    LegacyGate legacy;
    for (const auto &memory : memories) {
        fill_late(memory->address());
    }
    legacy.gate.open_later(kSoon);
    for (const size_t i : {size_t{39}, size_t{0}, size_t{17}}) {
        query_memory(pointer(memories[i]->address()));
        EXPECT_EQ(filled_, onlooker.look(memories[i]->address()));
    }
}

// ---------------------------------------------------------------- contexts and captures

/** A context of its own, current while it lives. */
class OtherContext {
public:
    OtherContext() : context_(gpushm::test::make_context()) {
        EXPECT_CU(cu().cuCtxPushCurrent(context_));
    }
    ~OtherContext() {
        CUcontext popped = nullptr;
        EXPECT_CU(cu().cuCtxPopCurrent(&popped));
        gpushm::test::destroy_context(context_);
    }

private:
    const CUcontext context_;
};

/** Launches in two contexts in turn: each finds its own copy covered. */
TEST_F(HooksEarlyMemset, IsCoveredInEachContext) {
    DeviceMemory here(before_);
    meet(here);
    const OtherContext other;
    DeviceMemory there(before_);
    meet(there);
    Onlooker onlooker(FillBuffers::kBytes);
    Gate gate;
    fill_late(there.address());
    ASSERT_CU(cu().cuCtxPushCurrent(context_));
    fill_late(here.address());
    EXPECT_CU(cu().cuLaunchHostFunc(CU_STREAM_LEGACY, wait_for_gate, &gate));
    CUcontext popped = nullptr;
    ASSERT_CU(cu().cuCtxPopCurrent(&popped));
    EXPECT_CU(cu().cuLaunchHostFunc(CU_STREAM_LEGACY, wait_for_gate, &gate));
    query_memory(pointer(there.address()));
    query_memory(pointer(here.address()));
    EXPECT_FALSE(gate.opened()) << "a message waited";
    EXPECT_EQ(filled_, onlooker.look(there.address()));
    gate.open();
    ASSERT_CU(cu().cuCtxSynchronize());
    ASSERT_CU(cu().cuCtxPushCurrent(context_));
    ASSERT_CU(cu().cuCtxSynchronize());
    ASSERT_CU(cu().cuCtxPopCurrent(&popped));
}

TEST_F(HooksEarlyMemset, LaunchesOfTheApplicationAreCounted) {
    const auto launch_nothing = [] {
        EXPECT_NE(CUDA_SUCCESS,
                  cu().cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    };
    const uint64_t before = gpushm::application_launches();
    launch_nothing();
    EXPECT_EQ(before + 1, gpushm::application_launches());
    {
        const gpushm::OwnCopies own;
        launch_nothing();
    }
    EXPECT_EQ(before + 1, gpushm::application_launches()) << "one of gpushm's own";
}

/** The default stream of each of many threads, some of which end. */
TEST_F(HooksEarlyMemset, OfManyThreadsAreDone) {
    const auto fill = cu().find_symbol("cuMemsetD8_v2_ptds");
    ASSERT_NE(nullptr, fill);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int i = 0; i < 100; ++i) {
        threads.emplace_back([&] {
            if (cu().cuCtxSetCurrent(context_) != CUDA_SUCCESS) {
                ++wrong;
                return;
            }
            DeviceMemory memory(before_);
            meet(memory);
            Onlooker onlooker(FillBuffers::kBytes);
            for (int round = 1; round < 4; ++round) {
                reinterpret_cast<CUresult (*)(CUdeviceptr, unsigned char, size_t)>(fill)(
                    memory.address(), static_cast<unsigned char>(round), FillBuffers::kBytes);
                query_memory(pointer(memory.address()));
                wrong += onlooker.look(memory.address()) !=
                         Bytes(FillBuffers::kBytes, static_cast<unsigned char>(round));
            }
        });
        if (threads.size() == 10) {
            for (std::thread &thread : threads) {
                thread.join();
            }
            threads.clear();
        }
    }
    EXPECT_EQ(0, wrong.load());
}

TEST_F(HooksEarlyMemset, OfAContextThatHasEndedIsForgotten) {
    DeviceMemory met(before_);
    meet(met);
    for (int i = 0; i < 100; ++i) {  // more than there are places for
        {
            const OtherContext other;
            DeviceMemory memory(FillBuffers::kBytes);
            meet(memory);
            fill_late(memory.address());
        }
        query_memory(pointer(met.address()));
        DeviceMemory unknown(before_);
        meet(unknown);
    }
}

TEST_F(HooksEarlyMemset, IsWaitedForInItsOwnContext) {
    const OtherContext other;
    DeviceMemory memory(before_);
    meet(memory);
    Onlooker onlooker(FillBuffers::kBytes);
    LegacyGate legacy;
    fill_late(memory.address());
    ASSERT_CU(cu().cuCtxPushCurrent(context_));
    ASSERT_CU(cu().cuCtxSynchronize());  // not of that context
    legacy.gate.open_later(kSoon);
    query_memory(pointer(memory.address()));
    EXPECT_TRUE(legacy.gate.opened());
    CUcontext popped = nullptr;
    ASSERT_CU(cu().cuCtxPopCurrent(&popped));
    EXPECT_EQ(filled_, onlooker.look(memory.address()));
}

TEST_F(HooksEarlyMemset, DoesNotDisturbACapture) {
    DeviceMemory memory(before_);
    meet(memory);
    Onlooker onlooker(FillBuffers::kBytes);
    Stream captured(CU_STREAM_DEFAULT);
    CUgraph graph = nullptr;
    LegacyGate legacy;
    fill_late(memory.address());
    ASSERT_CU(cu().cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_FALSE(legacy.gate.opened()) << "the capture waited";
    legacy.gate.open_later(kSoon);
    query_memory(pointer(memory.address()));
    EXPECT_TRUE(legacy.gate.opened());
    EXPECT_CU(cu().cuStreamEndCapture(captured, &graph));
    EXPECT_EQ(filled_, onlooker.look(memory.address()));
}

TEST_F(HooksEarlyMemset, WaitsItselfWherePeersAccessTheMemoryWithoutAMessage) {
    DeviceMemory memory(before_);
    const gpushm::MemoryInfo info = query_memory(pointer(memory.address()));
    unsigned attribute = 1;
    ASSERT_CU(
        cu().cuPointerGetAttribute(&attribute, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory.address()));
    EXPECT_EQ(0u, attribute);
    gpushm::be_synchronous(info, pointer(memory.address()));
    LegacyGate legacy;
    legacy.gate.open_later(kSoon);
    fill_late(memory.address());
    EXPECT_TRUE(legacy.gate.opened());
}

}  // namespace
