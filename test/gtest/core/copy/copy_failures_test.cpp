// SPDX-License-Identifier: BSD-3-Clause
// What a failing driver call makes of a copy: gpu_error with a line, and nothing else.
#include "core/copy/copy_any.hpp"
#include "core/copy/copy_pieces.hpp"
#include "test/gtest/core/gpu_support.hpp"

#include <chrono>
#include <cstring>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

struct Failure {
    const char *to_gpu;    // SIMCUDA_FAIL for a copy to the GPU
    const char *from_gpu;  // and for one from the GPU
    bool first_copy;       // whether these calls come at an engine's first copy only
};

void PrintTo(const Failure &failure, std::ostream *out) {
    *out << failure.to_gpu;
}

class CopyFailures : public GpuTest, public testing::WithParamInterface<Failure> {
protected:
    void SetUp() override {
        if (!simulated()) {
            GTEST_SKIP() << "makes calls fail";
        }
    }
};

Status copy(CopyEngine &engine, Buffer &destination, const Buffer &source) {
    CopyTicket ticket;
    const Status status = start_any(engine, destination.data(), source.data(), 4096, &ticket);
    return status == Status::in_progress ? engine.wait(&ticket) : status;
}

class CopyErrors : public CopyFailures {};

TEST_P(CopyErrors, EndThatCopyOnly) {
    for (const bool to_gpu : {true, false}) {
        const LogCapture log;
        Buffer device(MemoryKind::device, 4096);
        Buffer host(MemoryKind::pinned, 4096);
        Buffer &source = to_gpu ? host : device;
        Buffer &destination = to_gpu ? device : host;
        CopyEngine engine;
        source.fill(1);
        if (!GetParam().first_copy) {
            ASSERT_EQ(copy(engine, destination, source), Status::ok);
        }
        destination.fill(2);
        set_simulation("SIMCUDA_DELAY_US", "1000");  // a copy that is given up too early shows
        const char *rule = to_gpu ? GetParam().to_gpu : GetParam().from_gpu;
        set_simulation("SIMCUDA_FAIL", rule);
        EXPECT_EQ(copy(engine, destination, source), Status::gpu_error) << rule;
        set_simulation("SIMCUDA_FAIL", "");
        set_simulation("SIMCUDA_DELAY_US", "0");
        EXPECT_EQ(log.count("failed for a GPU copy"), 1u) << "a line for the user";
        EXPECT_EQ(current_context(), context_);
        // The failed copy is over: what the owner writes now stays.
        destination.fill(3);
        source.fill(4);
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        EXPECT_EQ(destination.check(0, 4096, 3, 0), "") << rule;
        EXPECT_EQ(copy(engine, destination, source), Status::ok) << "after " << rule;
        EXPECT_EQ(destination.check(0, 4096, 4, 0), "");
    }
}

INSTANTIATE_TEST_SUITE_P(
    Calls, CopyErrors,
    testing::Values(
        Failure{"cuPointerGetAttributes:1:700", "cuPointerGetAttributes:2:700", false},
        Failure{"cuCtxGetId:1:709,cuCtxGetId:1:709", "cuCtxGetId:1:700,cuCtxGetId:1:700", true},
        Failure{"cuCtxGetId:1:709,cuCtxGetId:1:709,cuCtxGetId:1:709",
                "cuCtxGetId:1:201,cuCtxGetId:1:700,cuCtxGetId:1:1", false},
        Failure{"cuCtxPushCurrent:1:709,cuCtxPushCurrent:1:709",
                "cuCtxPushCurrent:1:709,cuCtxPushCurrent:1:709", true},
        Failure{"cuStreamCreate:1:2,cuStreamCreate:1:2", "cuStreamCreate:1:2,cuStreamCreate:1:2",
                true},
        Failure{"cuEventCreate:1:2,cuEventCreate:1:2", "cuEventCreate:1:2,cuEventCreate:1:2", true},
        Failure{"cuMemcpyAsync:1:700,cuMemcpyAsync:1:700", "cuMemcpyAsync:1:1,cuMemcpyAsync:1:2",
                false}));

class CopyRescues : public CopyFailures {};

/** UCP ends the process when a copy between memory kinds fails. */
TEST_P(CopyRescues, OneFailingCallIsNoError) {
    for (const bool to_gpu : {true, false}) {
        const LogCapture log;
        Buffer device(MemoryKind::device, 4096);
        Buffer host(MemoryKind::pinned, 4096);
        Buffer &source = to_gpu ? host : device;
        Buffer &destination = to_gpu ? device : host;
        CopyEngine engine;
        source.fill(3);
        if (!GetParam().first_copy) {
            ASSERT_EQ(copy(engine, destination, source), Status::ok);
        }
        source.fill(1);
        destination.fill(2);
        set_simulation("SIMCUDA_DELAY_US", "1000");
        const char *rule = to_gpu ? GetParam().to_gpu : GetParam().from_gpu;
        set_simulation("SIMCUDA_FAIL", rule);
        EXPECT_EQ(copy(engine, destination, source), Status::ok) << rule;
        set_simulation("SIMCUDA_FAIL", "");
        EXPECT_EQ(destination.check(0, 4096, 1, 0), "") << "ok was said too early";
        set_simulation("SIMCUDA_DELAY_US", "0");
        EXPECT_EQ(log.count("failed"), 0u);
        source.fill(4);
        EXPECT_EQ(copy(engine, destination, source), Status::ok) << "after " << rule;
        EXPECT_EQ(destination.check(0, 4096, 4, 0), "");
    }
}

INSTANTIATE_TEST_SUITE_P(Calls, CopyRescues,
                         testing::Values(Failure{"cuMemcpyAsync:1:700", "cuMemcpyAsync:1:2", true},
                                         Failure{"cuEventRecord:1:700", "cuEventRecord:1:1", true},
                                         Failure{"cuEventQuery:1:700", "cuEventQuery:2:1", true},
                                         Failure{"cuCtxGetId:1:709", "cuCtxGetId:1:700", true},
                                         Failure{"cuCtxPushCurrent:1:709", "cuCtxPushCurrent:2:709",
                                                 true},
                                         Failure{"cuStreamCreate:1:2", "cuStreamCreate:1:2", true},
                                         Failure{"cuEventCreate:1:2", "cuEventCreate:1:2", true},
                                         Failure{"cuCtxGetId:1:700", "cuCtxGetId:1:1", false},
                                         Failure{"cuCtxGetId:1:709", "cuCtxGetId:1:201", false}));

/** A failing question says nothing of a context, unless the answer is that it is gone. */
TEST_F(GpuTest, CopyEngineLosesStreamsAndCopiesOnlyWithTheirContext) {
    if (!simulated()) {
        GTEST_SKIP() << "makes calls fail";
    }
    for (const auto &[rule, gone] : {std::pair<const char *, bool>{"cuCtxGetId:1:700", false},
                                     {"cuCtxGetId:1:1", false},
                                     {"cuCtxGetId:1:709", true},
                                     {"cuCtxGetId:1:201", true}}) {
        Buffer device(MemoryKind::device, 8192);
        Buffer host(MemoryKind::pinned, 8192);
        host.fill(1);
        CopyEngine engine;
        set_simulation("SIMCUDA_DELAY_US", "3000");
        CopyTicket before;
        CopyTicket after;
        ASSERT_EQ(start_any(engine, device.data(), host.data(), 4096, &before),
                  Status::in_progress);
        reset_calls();
        set_simulation("SIMCUDA_FAIL", rule);
        EXPECT_EQ(start_any(engine, device.data() + 4096, host.data() + 4096, 4096, &after),
                  Status::in_progress)
            << rule;
        set_simulation("SIMCUDA_FAIL", "");
        EXPECT_EQ(calls("cuStreamCreate"), gone ? 1u : 0u) << rule;
        EXPECT_EQ(engine.wait(&before), gone ? Status::gpu_error : Status::ok) << rule;
        EXPECT_EQ(engine.wait(&after), Status::ok) << rule;
        set_simulation("SIMCUDA_DELAY_US", "5");
        EXPECT_EQ(cuda_function<CUresult (*)()>("cuCtxSynchronize")(), CUDA_SUCCESS);
        EXPECT_EQ(device.check(0, 8192, 1, 0), "") << rule;
    }
}

/** Of these nobody can tell when the copy ended: it is an error, though it may have been done. */
TEST_F(GpuTest, CopyEngineThatCannotLearnOfTheEndSaysError) {
    if (!simulated()) {
        GTEST_SKIP() << "makes calls fail";
    }
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    host.fill(1);
    CopyEngine engine;
    for (const char *function : {"cuEventRecord", "cuEventQuery"}) {
        const LogCapture log;
        set_simulation("SIMCUDA_FAIL",
                       (std::string(function) + ":1:700,cuStreamSynchronize:1:700").c_str());
        EXPECT_EQ(copy(engine, device, host), Status::gpu_error);
        set_simulation("SIMCUDA_FAIL", "");
        EXPECT_EQ(log.count(function), 1u);
        EXPECT_EQ(copy(engine, device, host), Status::ok) << "after it";
        EXPECT_EQ(device.check(0, 4096, 1, 0), "");
    }
}

TEST_F(GpuTest, CopyEngineFailsOneOfSeveralCopiesOnly) {
    if (!simulated()) {
        GTEST_SKIP() << "makes calls fail";
    }
    const LogCapture log;
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    host.fill(1);
    device.fill(2);
    CopyEngine engine;
    set_simulation("SIMCUDA_DELAY_US", "3000");
    CopyTicket tickets[6];
    for (size_t i = 0; i < 6; ++i) {  // the first two run, the others are collected
        ASSERT_EQ(
            start_any(engine, device.data() + i * 100, host.data() + i * 100, 100, &tickets[i]),
            Status::in_progress);
    }
    set_simulation("SIMCUDA_DELAY_US", "5");
    set_simulation("SIMCUDA_FAIL",
                   "cuMemcpyBatchAsync:1:1,cuMemcpyAsync:2:700,cuMemcpyAsync:2:700");
    for (size_t i = 0; i < 6; ++i) {
        EXPECT_EQ(engine.wait(&tickets[i]), i == 3 ? Status::gpu_error : Status::ok) << i;
    }
    set_simulation("SIMCUDA_FAIL", "");
    EXPECT_EQ(log.count("cuMemcpyAsync"), 1u);
    Buffer expected(MemoryKind::host, 4096);
    expected.fill(2);
    std::vector<unsigned char> pattern(4096);
    fill_pattern(pattern.data(), 4096, 1);
    for (size_t i = 0; i < 6; ++i) {
        if (i != 3) {
            memcpy(expected.data() + i * 100, pattern.data() + i * 100, 100);
        }
    }
    std::vector<unsigned char> got(4096);
    ASSERT_EQ(copy_any(got.data(), device.data(), 4096), Status::ok);
    EXPECT_EQ(memcmp(got.data(), expected.data(), 4096), 0);
}

/** "function:1:error" for so many calls. */
std::string fail(const std::string &function, int error, int times) {
    std::string rules;
    for (int i = 0; i < times; ++i) {
        rules += (i == 0 ? "" : ",") + function + ":1:" + std::to_string(error);
    }
    return rules;
}

struct Tries {
    std::string rule;
    Status status;
    size_t lines;           // one for each try that fails
    unsigned long memcpys;  // calls of the last resort
};

/** copy_any waits by cuStreamQuery, without an event. It tries two engines, each of which submits
 * twice, and cuMemcpy at last. */
TEST_F(GpuTest, CopyAnyFailsOnlyWhenAllItsTriesDo) {
    if (!simulated()) {
        GTEST_SKIP() << "makes calls fail";
    }
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    ASSERT_EQ(copy_any(device.data(), host.data(), 4096), Status::ok);
    uint64_t seed = 10;
    const std::string unknown_end =
        fail("cuStreamQuery", 700, 1) + "," + fail("cuStreamSynchronize", 700, 1);
    for (const Tries &tries :
         {Tries{fail("cuMemcpyAsync", 2, 1), Status::ok, 0, 0},
          Tries{fail("cuStreamQuery", 700, 1), Status::ok, 0, 0},
          Tries{fail("cuCtxGetId", 709, 1), Status::ok, 0, 0},
          Tries{fail("cuCtxGetId", 700, 1), Status::ok, 0, 0},
          Tries{fail("cuMemcpyAsync", 700, 2), Status::ok, 1, 0},
          Tries{unknown_end, Status::ok, 1, 0}, Tries{fail("cuCtxGetId", 709, 3), Status::ok, 1, 0},
          Tries{fail("cuMemcpyAsync", 700, 4), Status::ok, 2, 1},
          Tries{unknown_end + "," + unknown_end, Status::ok, 2, 1},
          Tries{fail("cuCtxGetId", 709, 6), Status::ok, 2, 1},
          Tries{fail("cuMemcpyAsync", 700, 4) + ",cuMemcpy:1:700", Status::gpu_error, 3, 1},
          Tries{fail("cuCtxGetId", 709, 6) + ",cuMemcpy:1:700", Status::gpu_error, 3, 1}}) {
        const LogCapture log;
        host.fill(++seed);
        device.fill(0);
        reset_calls();
        set_simulation("SIMCUDA_DELAY_US", "1000");
        set_simulation("SIMCUDA_FAIL", tries.rule.c_str());
        EXPECT_EQ(copy_any(device.data(), host.data(), 4096), tries.status) << tries.rule;
        set_simulation("SIMCUDA_FAIL", "");
        EXPECT_EQ(calls("cuMemcpy"), tries.memcpys) << tries.rule;
        EXPECT_EQ(log.count("GPU"), tries.lines) << tries.rule;
        EXPECT_EQ(device.check(0, 4096, tries.status == Status::ok ? seed : 0, 0), "")
            << tries.rule;
        // Copies of which the end was not known.
        EXPECT_EQ(cuda_function<CUresult (*)()>("cuCtxSynchronize")(), CUDA_SUCCESS);
        set_simulation("SIMCUDA_DELAY_US", "5");
        EXPECT_EQ(copy_any(device.data(), host.data(), 4096), Status::ok) << "after " << tries.rule;
        EXPECT_EQ(device.check(0, 4096, seed, 0), "");
    }
}

TEST_F(GpuTest, CopyEngineLosesNoEventByARefusedCopy) {
    if (!simulated()) {
        GTEST_SKIP() << "makes calls fail";
    }
    const LogCapture log;
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    reset_calls();
    {
        CopyEngine engine;
        for (const char *rule : {"cuMemcpyAsync:1:700,cuMemcpyAsync:1:700",
                                 "cuEventRecord:1:700,cuStreamSynchronize:1:700",
                                 "cuEventQuery:1:700,cuStreamSynchronize:1:700"}) {
            set_simulation("SIMCUDA_FAIL", rule);
            EXPECT_EQ(copy(engine, device, host), Status::gpu_error);
        }
        set_simulation("SIMCUDA_FAIL", "cuEventRecord:1:700");
        EXPECT_EQ(copy(engine, device, host), Status::ok);
        set_simulation("SIMCUDA_FAIL", "");
    }
    EXPECT_EQ(calls("cuEventCreate"), 1u);
    EXPECT_EQ(calls("cuEventDestroy"), 1u);
}

TEST_F(GpuTest, CopyEngineWithoutAContextForTheMemoryIsAnError) {
    if (!simulated()) {
        GTEST_SKIP() << "makes calls fail";
    }
    const LogCapture log;
    Buffer host(MemoryKind::host, 64);
    MemoryInfo nameless;
    nameless.kind = MemoryKind::device;
    const CopyJob job = {host.data(), host.data() + 32, 32, nameless, CopyDirection::from_gpu};
    CopyTicket ticket;
    CopyEngine engine;
    set_simulation("SIMCUDA_FAIL", "cuDevicePrimaryCtxRetain:1:2,cuDevicePrimaryCtxRetain:1:2");
    EXPECT_EQ(engine.start(job, &ticket), Status::gpu_error);
    EXPECT_EQ(log.count("GPU copy of 32 bytes"), 1u);
    set_simulation("SIMCUDA_FAIL", "cuDevicePrimaryCtxRetain:1:2");
    EXPECT_NE(engine.start(job, &ticket), Status::gpu_error);
    EXPECT_EQ(engine.wait(&ticket), Status::ok) << "one refusal is none";
}

TEST_F(GpuTest, CopyEngineStreamsAreNotLostWhenTheSecondIsRefused) {
    if (!simulated()) {
        GTEST_SKIP() << "makes calls fail";
    }
    const LogCapture log;
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    set_simulation("SIMCUDA_FAIL", "cuStreamCreate:2:2,cuStreamCreate:2:2");
    reset_calls();
    {
        CopyEngine engine;
        EXPECT_EQ(copy(engine, device, host), Status::ok);
        EXPECT_EQ(copy(engine, host, device), Status::gpu_error) << "the other direction";
        EXPECT_EQ(copy(engine, device, host), Status::ok);
    }
    EXPECT_EQ(calls("cuStreamCreate"), 3u);
    EXPECT_EQ(calls("cuStreamDestroy"), 1u) << "the one that was made";
}

/** In a thread without a context some drivers want one for functions of streams. */
TEST_F(GpuTest, CopyEngineInAThreadWithoutAContextOutlivesARefusedPush) {
    if (!simulated()) {
        GTEST_SKIP() << "makes calls fail";
    }
    Buffer device(MemoryKind::device, 4096);
    Buffer host(MemoryKind::pinned, 4096);
    CopyEngine engine;
    ASSERT_EQ(copy(engine, device, host), Status::ok);
    std::thread([&] {
        for (const char *rule :
             {"cuCtxPushCurrent:1:709", "cuCtxPushCurrent:2:709", "cuCtxPushCurrent:3:709"}) {
            host.fill(5);
            const LogCapture log;
            set_simulation("SIMCUDA_FAIL", rule);
            const Status status = copy(engine, device, host);
            set_simulation("SIMCUDA_FAIL", "");
            EXPECT_TRUE(status == Status::ok || log.count("GPU") == 1) << rule;
            EXPECT_EQ(current_context(), nullptr);
        }
    }).join();
    EXPECT_EQ(device.check(0, 4096, 5, 0), "");
}

using CopyListFailures = GpuTest;

/** Each call that a list of copies needs fails once: the list is copied all the same. */
TEST_F(CopyListFailures, DoNotEndTheList) {
    SKIP_UNLESS_SIMULATED();
    constexpr size_t kPieces = 40;
    Buffer device(MemoryKind::device, kPieces * 512 + 64 * kPieces);
    Buffer host(MemoryKind::host, kPieces * 512);
    std::vector<CopyPiece> rows;
    std::vector<CopyPiece> scattered;
    for (size_t i = 0; i < kPieces; ++i) {
        rows.push_back({host.data() + 512 * i, device.data() + 520 * i, 512});
        scattered.push_back({host.data() + 512 * i, device.data() + 512 * i + i * i, 512});
    }
    uint64_t seed = 1000;
    for (const char *rule :
         {"cuPointerGetAttributes:3:700", "cuStreamCreate:1:2", "cuMemcpyAsync:1:700",
          "cuMemcpyAsync:2:1", "cuMemcpyBatchAsync:1:1", "cuMemcpy2DAsync:1:1",
          "cuMemcpy2DAsync:1:1,cuMemcpy2DAsync:1:1", "cuEventQuery:1:700"}) {
        for (const std::vector<CopyPiece> &pieces : {rows, scattered}) {
            device.fill(++seed);
            host.fill(++seed);
            set_simulation("SIMCUDA_FAIL", rule);
            EXPECT_EQ(copy_pieces(pieces), Status::ok) << rule;
            set_simulation("SIMCUDA_FAIL", "");
            for (const CopyPiece &piece : pieces) {
                unsigned char expected[512];
                ASSERT_EQ(cuda_.memcpy_sync(device_pointer(expected), device_pointer(piece.source),
                                            sizeof(expected)),
                          CUDA_SUCCESS);
                ASSERT_EQ(memcmp(piece.destination, expected, sizeof(expected)), 0) << rule;
            }
        }
    }
    device.fill(++seed);
    std::string all;
    for (const char *function :
         {"cuMemcpyAsync", "cuMemcpyBatchAsync", "cuMemcpy2DAsync", "cuMemcpy"}) {
        for (int failure = 0; failure < 9; ++failure) {
            all += (all.empty() ? "" : ",") + std::string(function) + ":1:700";
        }
    }
    set_simulation("SIMCUDA_FAIL", all.c_str());
    EXPECT_EQ(copy_pieces(rows), Status::gpu_error);
    set_simulation("SIMCUDA_FAIL", "");
}

}  // namespace
}  // namespace gpushm
