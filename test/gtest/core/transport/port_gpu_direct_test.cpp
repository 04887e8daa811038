// SPDX-License-Identifier: BSD-3-Clause
// Transfers by one copy between two ports of one process: nothing has to be mapped, so every way
// is the
// shortest at once. Their ends, failures and bounds are the same for mapped memory.
#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/core/transport/port_support.hpp"

#include "core/pinning/host_registration_cache.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <thread>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 300000;
constexpr char kOwner = 0;

class PortGpuDirect : public GpuTest {
protected:
    ~PortGpuDirect() override {
        a_.destroy();
        b_.destroy();
        HostRegistrationCache::instance().enable(0);
    }

    /** Waits for a transfer between buffers. */
    Status transfer(bool put, Buffer &source, size_t source_at, Buffer &target, size_t target_at,
                    size_t length) {
        Buffer &remote = put ? target : source;
        const Registration registration(remote.data(), length + (put ? target_at : source_at));
        const RemoteMemory memory = registration.named(put ? target_at : source_at);
        Outcome outcome;
        const Status status = put ? connection_.put(source.data() + source_at, length, memory,
                                                    nullptr, outcome.completion())
                                  : connection_.get(target.data() + target_at, length, memory,
                                                    nullptr, outcome.completion());
        if (status != Status::in_progress) {
            EXPECT_FALSE(outcome.done());
            return status;
        }
        EXPECT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
        return outcome.status;
    }

    TestPort a_{kMappingPort};
    TestPort b_{kMappingPort};
    Connection &connection_ = a_.connection(b_);
};

class PortGpuDirectKinds
    : public PortGpuDirect,
      public testing::WithParamInterface<std::tuple<MemoryKind, MemoryKind, bool>> {};

TEST_P(PortGpuDirectKinds, EveryLengthArrivesExactly) {
    const auto [from, to, put] = GetParam();
    HostRegistrationCache::instance().enable(size_t{1} << 30);
    constexpr size_t kRoom = (1 << 20) + 200;
    Buffer source(from, kRoom);
    Buffer target(to, kRoom);
    const bool pageable = from == MemoryKind::host || to == MemoryKind::host;
    uint64_t seed = 1;
    for (const size_t length : {1, 127, 4096, 65535, 100001, 1 << 20}) {
        // Page-locking pays in between.
        for (int round = 0; round < (pageable && length == 1 << 20 ? 9 : 1); ++round) {
            source.fill(++seed);
            target.fill(++seed);
            const size_t at = 1 + length % 13;
            ASSERT_EQ(transfer(put, source, 0, target, at, length), Status::ok);
            ASSERT_EQ(target.check(at, length, seed - 1, seed), "") << length;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, PortGpuDirectKinds,
                         testing::Combine(testing::ValuesIn(kAllKinds),
                                          testing::ValuesIn(kAllKinds), testing::Bool()),
                         [](const auto &info) {
                             return std::string(std::get<2>(info.param) ? "Put" : "Get") +
                                    memory_kind_name(std::get<0>(info.param)) + "To" +
                                    memory_kind_name(std::get<1>(info.param));
                         });

TEST_F(PortGpuDirect, OneCopyAndThePeerDoesNothing) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    Buffer source(MemoryKind::device, kBytes);
    Buffer target(MemoryKind::device, kBytes);
    source.fill(1);
    for (const bool put : {true, false}) {
        target.fill(2);
        const Registration registration(put ? target.data() : source.data(), kBytes);
        const RemoteMemory remote = registration.named();
        Outcome outcome;
        reset_calls();
        ASSERT_EQ(
            put ? connection_.put(source.data(), kBytes, remote, nullptr, outcome.completion())
                : connection_.get(target.data(), kBytes, remote, nullptr, outcome.completion()),
            Status::in_progress);
        ASSERT_TRUE(progress_until({&a_}, [&] { return outcome.done(); }));
        EXPECT_EQ(outcome.status, Status::ok);
        // One that takes long is asked after, by another cuMemcpyAsync.
        EXPECT_TRUE(calls("cuLaunchKernel") == 1 || calls("cuMemcpyAsync") == 1);
        EXPECT_EQ(calls("cuIpcOpenMemHandle"), 0u);
        EXPECT_EQ(target.check(0, kBytes, 1, 2), "");
    }
}

TEST_F(PortGpuDirect, MemoryThatIsNotRegisteredIsNotTouched) {
    const LogCapture log;
    Buffer local(MemoryKind::device, kBytes);
    Buffer remote(MemoryKind::device, kBytes);
    local.fill(1);
    remote.fill(2);
    RemoteMemory gone;
    {
        const Registration registration(remote.data(), kBytes / 2);
        gone = registration.named();
        for (const bool put : {true, false}) {  // more than is registered
            Outcome outcome;
            ASSERT_EQ(
                put ? connection_.put(local.data(), kBytes, gone, nullptr, outcome.completion())
                    : connection_.get(local.data(), kBytes, gone, nullptr, outcome.completion()),
                Status::in_progress);
            ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
            EXPECT_EQ(outcome.status, Status::gpu_error);
        }
    }
    for (const bool put : {true, false}) {
        Outcome outcome;
        ASSERT_EQ(put ? connection_.put(local.data(), 100, gone, nullptr, outcome.completion())
                      : connection_.get(local.data(), 100, gone, nullptr, outcome.completion()),
                  Status::in_progress);
        ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
        EXPECT_EQ(outcome.status, Status::gpu_error);
    }
    EXPECT_EQ(local.check(0, kBytes, 1, 0), "");
    EXPECT_EQ(remote.check(0, kBytes, 2, 0), "");
}

TEST_F(PortGpuDirect, FlushAndFenceWaitForIt) {
    if (!simulated()) {
        GTEST_SKIP() << "needs a slow GPU";
    }
    Buffer source(MemoryKind::device, kBytes);
    Buffer target(MemoryKind::device, kBytes);
    source.fill(1);
    target.fill(2);
    const Registration registration(target.data(), kBytes);
    const RemoteMemory remote = registration.named();
    set_simulation("SIMCUDA_DELAY_US", "20000");
    Outcome put;
    Outcome flush;
    ASSERT_EQ(connection_.put(source.data(), kBytes, remote, nullptr, put.completion()),
              Status::in_progress);
    ASSERT_EQ(connection_.flush(nullptr, flush.completion()), Status::in_progress);
    connection_.fence();
    a_->progress();
    b_->progress();
    EXPECT_FALSE(put.done() || flush.done());
    EXPECT_EQ(connection_.am_short(1, 0, nullptr, 0), Status::no_resource) << "behind the fence";
    EXPECT_FALSE(a_->arm());
    ASSERT_TRUE(progress_until({&a_}, [&] { return flush.done(); }));
    EXPECT_TRUE(put.done());
    EXPECT_EQ(put.status, Status::ok);
    EXPECT_EQ(connection_.am_short(1, 0, nullptr, 0), Status::ok);
    set_simulation("SIMCUDA_DELAY_US", "5");
    EXPECT_EQ(target.check(0, kBytes, 1, 0), "");
}

/** More than a sender can show its peer at a time (DirectWrites). */
TEST_F(PortGpuDirect, PutsToManyRegistrationsAllArrive) {
    constexpr size_t kParts = 3 * DirectWrites::kPlaces;
    constexpr size_t kPart = kBytes / kParts;
    Buffer source(MemoryKind::device, kBytes);
    Buffer target(MemoryKind::device, kBytes);
    source.fill(1);
    target.fill(2);
    std::deque<Registration> registrations;
    std::deque<Outcome> outcomes(kParts);
    for (size_t i = 0; i < kParts; ++i) {
        registrations.emplace_back(target.data() + i * kPart, kPart);
        const RemoteMemory remote = registrations.back().named();
        ASSERT_EQ(send_when_possible(a_, b_,
                                     [&] {
                                         return connection_.put(source.data() + i * kPart, kPart,
                                                                remote, nullptr,
                                                                outcomes[i].completion());
                                     }),
                  Status::in_progress);
    }
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] {
        return std::all_of(outcomes.begin(), outcomes.end(),
                           [](const Outcome &outcome) { return outcome.done(); });
    }));
    EXPECT_EQ(target.check(0, kParts * kPart, 1, 2), "");
}

/** Its owner has it back, and may have written there before the copy began. */
TEST_F(PortGpuDirect, WhatIsDeregisteredMeanwhileDoesNotCount) {
    Buffer source(MemoryKind::device, kBytes);
    Buffer target(MemoryKind::device, kBytes);
    Registration registration(source.data(), kBytes);
    const RemoteMemory remote = registration.named();
    for (const bool at_once : {false, true}) {
        Outcome outcome;
        ASSERT_EQ(connection_.get(target.data(), kBytes, remote, nullptr, outcome.completion()),
                  Status::in_progress);
        if (!at_once) {
            registration.end();
        }
        ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
        EXPECT_EQ(outcome.status, Status::gpu_error);
    }
}

/** What was written lies in memory that is not the program's to have written there. */
TEST_F(PortGpuDirect, WhatIsWrittenToNoRegistrationIsAnError) {
    Buffer source(MemoryKind::device, kBytes);
    Buffer target(MemoryKind::device, kBytes);
    Registration registration(target.data(), kBytes);
    Outcome outcome;
    ASSERT_EQ(
        connection_.put(source.data(), kBytes, registration.named(), nullptr, outcome.completion()),
        Status::in_progress);
    registration.end();
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
    EXPECT_EQ(outcome.status, Status::gpu_error);
}

/** What ends it: cancel, a failure of the connection, the end of the port. */
enum class End { cancel, fail, destroy };

class PortGpuDirectEnds : public PortGpuDirect, public testing::WithParamInterface<End> {};

TEST_P(PortGpuDirectEnds, LeavesTheMemoryAlone) {
    if (!simulated()) {
        GTEST_SKIP() << "needs a slow GPU";
    }
    Buffer local(MemoryKind::device, kBytes);
    Buffer remote(MemoryKind::device, kBytes);
    remote.fill(1);
    const Registration registration(remote.data(), kBytes);
    constexpr size_t kHalf = kBytes / 2;
    set_simulation("SIMCUDA_DELAY_US", "20000");
    Outcome outcome;
    Outcome put;
    ASSERT_EQ(
        connection_.get(local.data(), kHalf, registration.named(), &kOwner, outcome.completion()),
        Status::in_progress);
    ASSERT_EQ(connection_.put(local.data() + kHalf, kHalf, registration.named(kHalf), &kOwner,
                              put.completion()),
              Status::in_progress);
    a_->progress();
    switch (GetParam()) {
        case End::cancel:
            connection_.cancel(&kOwner);
            break;
        case End::fail:
            connection_.fail();
            break;
        case End::destroy:
            a_.destroy();
            break;
    }
    set_simulation("SIMCUDA_DELAY_US", "5");
    EXPECT_EQ(outcome.calls, GetParam() == End::fail ? 1u : 0u);
    EXPECT_EQ(put.calls, GetParam() == End::fail ? 1u : 0u);
    local.fill(2);
    remote.fill(3);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_EQ(local.check(0, kBytes, 2, 0), "");
    EXPECT_EQ(remote.check(0, kBytes, 3, 0), "");
    if (GetParam() == End::cancel) {
        settle({&a_, &b_});
        EXPECT_TRUE(a_->idle() && b_->idle());
        EXPECT_EQ(transfer(false, remote, 0, local, 0, kBytes), Status::ok);
        EXPECT_EQ(local.check(0, kBytes, 3, 0), "");
    }
}

INSTANTIATE_TEST_SUITE_P(Ends, PortGpuDirectEnds,
                         testing::Values(End::cancel, End::fail, End::destroy));

TEST_F(PortGpuDirect, PortWithoutMappingTakesTheRing) {
    TestPort plain(kSmallPort);
    Buffer source(MemoryKind::device, kBytes);
    Buffer target(MemoryKind::device, kBytes);
    source.fill(1);
    const Registration registration(source.data(), kBytes);
    Outcome outcome;
    if (simulated()) {
        reset_calls();
    }
    ASSERT_EQ(plain.connection(b_).get(target.data(), kBytes, registration.named(), nullptr,
                                       outcome.completion()),
              Status::in_progress);
    ASSERT_TRUE(progress_until({&plain, &b_}, [&] { return outcome.done(); }));
    EXPECT_EQ(target.check(0, kBytes, 1, 0), "");
    EXPECT_TRUE(!simulated() || calls("cuMemcpyAsync") + calls("cuMemcpyBatchAsync") > 2);
}

}  // namespace
}  // namespace gpushm
