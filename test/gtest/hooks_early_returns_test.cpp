// SPDX-License-Identifier: BSD-3-Clause
// Copies and memsets that return before they are done: whoever asks for the memory of a message finds them done.
#include "core/cuda/driver_watch.hpp"
#include "core/cuda/unfinished_copies.hpp"
#include "core/memory/memory_info.hpp"

#include "hooks_support.hpp"
#include "test/simcuda/fill_calls.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace {

using gpushm::query_memory;
using std::chrono::milliseconds;

constexpr milliseconds kSoon{30};

const void *pointer(CUdeviceptr address) { return reinterpret_cast<const void *>(address); }

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
    static void meet(const DeviceMemory &memory) { query_memory(pointer(memory.address())); }

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
        void *const function = cu().find_symbol(fill().symbol + (of_thread() ? fill().per_thread_form : ""));
        return function == nullptr ? CUDA_ERROR_NOT_FOUND : fill().run(function, {to, from, context_}, nullptr);
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
                         testing::Combine(testing::ValuesIn(synchronous_calls(false)), testing::Bool()), name_of);
INSTANTIATE_TEST_SUITE_P(, HooksEarlyCopies,
                         testing::Combine(testing::ValuesIn(synchronous_calls(true)), testing::Bool()), name_of);

// ---------------------------------------------------------------- other memory

class HooksEarlyMemset : public HooksEarlyReturns {
protected:
    /** Held back by `gate`. */
    void fill_late(CUdeviceptr memory) { ASSERT_CU(cu().cuMemsetD8(memory, kByte, FillBuffers::kBytes)); }

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

TEST_F(HooksEarlyReturns, OfPageableMemoryIsDone) {
    DeviceMemory to(before_);
    meet(to);
    Onlooker onlooker(FillBuffers::kBytes);
    // The driver has read the source when the call returns; there is no gate, for it waits for the stream before.
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

TEST_F(HooksEarlyMemset, BeforeTheHooksIsDone) { EXPECT_EQ(early_memset.run(), 0); }

// ---------------------------------------------------------------- what is not waited for

/** What the program starts behind a memset: it ends when the gate opens. */
struct Behind {
    const char *name;
    std::function<void(Gate *)> start;
};

class HooksBehindEarlyMemset : public HooksEarlyMemset, public testing::WithParamInterface<Behind> {};

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
    {"AHostFunction", [](Gate *gate) { EXPECT_CU(cu().cuLaunchHostFunc(CU_STREAM_LEGACY, wait_for_gate, gate)); }},
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
    for (const char *function :
         {"cuEventRecord", "cuEventQuery", "cuEventSynchronize", "cuStreamQuery", "cuStreamSynchronize"}) {
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
         const auto wait = reinterpret_cast<CUresult (*)(CUcontext)>(cu().find_symbol("cuCtxSynchronize_v2"));
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

// ---------------------------------------------------------------- contexts and captures

TEST_F(HooksEarlyMemset, OfAContextThatHasEndedIsForgotten) {
    DeviceMemory met(before_);
    meet(met);
    for (int i = 0; i < 100; ++i) {  // more than there are places for
        const CUcontext context = gpushm::test::make_context();
        {
            DeviceMemory memory(FillBuffers::kBytes);
            meet(memory);
            fill_late(memory.address());
        }
        gpushm::test::destroy_context(context);
        query_memory(pointer(met.address()));
    }
}

TEST_F(HooksEarlyMemset, IsWaitedForInItsOwnContext) {
    DeviceMemory met(before_);
    meet(met);
    const CUcontext context = gpushm::test::make_context();
    {
        DeviceMemory memory(before_);
        meet(memory);
        Onlooker onlooker(FillBuffers::kBytes);
        LegacyGate legacy;
        fill_late(memory.address());
        ASSERT_CU(cu().cuCtxPushCurrent(context_));
        ASSERT_CU(cu().cuCtxSynchronize());  // not of that context
        legacy.gate.open_later(kSoon);
        query_memory(pointer(met.address()));
        EXPECT_TRUE(legacy.gate.opened());
        CUcontext popped = nullptr;
        ASSERT_CU(cu().cuCtxPopCurrent(&popped));
        EXPECT_EQ(filled_, onlooker.look(memory.address()));
    }
    gpushm::test::destroy_context(context);
}

TEST_F(HooksEarlyMemset, DoesNotDisturbACapture) {
    DeviceMemory memory(before_);
    meet(memory);
    Onlooker onlooker(FillBuffers::kBytes);
    Stream captured(CU_STREAM_DEFAULT);
    CUgraph graph = nullptr;
    LegacyGate legacy;
    fill_late(memory.address());
    legacy.gate.open_later(kSoon);
    ASSERT_CU(cu().cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    query_memory(pointer(memory.address()));
    EXPECT_TRUE(legacy.gate.opened());
    EXPECT_CU(cu().cuStreamEndCapture(captured, &graph));
    EXPECT_EQ(filled_, onlooker.look(memory.address()));
}

TEST_F(HooksEarlyMemset, WaitsItselfWherePeersAccessTheMemoryWithoutAMessage) {
    DeviceMemory memory(before_);
    const gpushm::MemoryInfo info = query_memory(pointer(memory.address()));
    unsigned attribute = 1;
    ASSERT_CU(cu().cuPointerGetAttribute(&attribute, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory.address()));
    EXPECT_EQ(0u, attribute);
    gpushm::be_synchronous(info, pointer(memory.address()));
    LegacyGate legacy;
    legacy.gate.open_later(kSoon);
    fill_late(memory.address());
    EXPECT_TRUE(legacy.gate.opened());
}

}  // namespace
