// SPDX-License-Identifier: BSD-3-Clause
// GPU memory is deregistered while a put of a peer is under way: when that returns the memory is
// the program's own.
#include "test/gtest/core/transport/port_gpu_peer.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <tuple>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 20000;
constexpr const char *kSlow = "150000";
constexpr const char *kUsual = "5";

unsigned long copies() {
    return calls("cuMemcpyAsync") + calls("cuMemcpyBatchAsync") + calls("cuLaunchKernel");
}

/** Whether anybody writes a registration through a mapping. */
bool is_written(TestPort &port, uint64_t registration) {
    const char *why = "";
    const std::optional<Segment> segment =
        Segment::attach(getpid(), port->address().segment_fd, 0, &why);
    const DirectWrites *words = segment ? MailboxGeometry::direct_writes(segment->data()) : nullptr;
    return words != nullptr && std::any_of(words, words + kMaxSenders, [=](const DirectWrites &of) {
               return of.contain(registration);
           });
}

/** Through what it goes, and whether another thread than the one that deregisters uses the ports.
 */
class PortGpuDeregistration : public GpuTest,
                              public testing::WithParamInterface<std::tuple<bool, bool>> {
protected:
    void TearDown() override {
        if (simulated()) {
            set_simulation("SIMCUDA_DELAY_US", kUsual);
        }
        GpuTest::TearDown();
    }

    bool is_mapped() const { return std::get<0>(GetParam()); }
    const PortConfig &config() const { return is_mapped() ? kMappingPort : kSmallPort; }
};

TEST_P(PortGpuDeregistration, NothingIsWrittenAfterIt) {
    if (!simulated()) {
        GTEST_SKIP() << "needs a slow GPU";
    }
    const LogCapture log;
    Buffer source(MemoryKind::host, kBytes);
    Buffer gpu_source(MemoryKind::device, kBytes);
    Buffer target(MemoryKind::device, kBytes);
    source.fill(1);
    gpu_source.fill(1);
    Registration registration(target.data(), kBytes);
    TestPort a(config());
    TestPort b(config());
    Connection &connection = a.connection(b);
    make_ring_ready(a, b);
    const void *from = is_mapped() ? gpu_source.data() : source.data();
    Outcome outcome;
    const auto begin = [&] {
        reset_calls();
        set_simulation("SIMCUDA_DELAY_US", kSlow);
        EXPECT_EQ(connection.put(from, kBytes, registration.named(), nullptr, outcome.completion()),
                  Status::in_progress);
        EXPECT_TRUE(progress_until({&a, &b}, [&] { return copies() != 0; }));
    };
    const auto deregister = [&] {
        registration.end();
        EXPECT_EQ(log.count("peer's data into deregistered memory"), 0u);
        set_simulation("SIMCUDA_DELAY_US", kUsual);
        target.fill(2);
    };
    const auto finish = [&] {
        EXPECT_TRUE(progress_until({&a, &b}, [&] { return outcome.done(); }));
    };
    if (std::get<1>(GetParam())) {
        std::atomic<bool> begun{false};
        std::thread user([&] {
            const CurrentContext current(&cuda_, context_);
            begin();
            begun = true;
            finish();
        });
        while (!begun) {
            std::this_thread::yield();
        }
        deregister();
        user.join();
    } else {
        begin();
        deregister();
        finish();
    }
    std::this_thread::sleep_for(
        std::chrono::microseconds(2 * std::atoi(kSlow)));  // what was forgotten would land
    EXPECT_EQ(target.check(0, kBytes, 2, 0), "");
    a.destroy();
    b.destroy();
}

INSTANTIATE_TEST_SUITE_P(Ways, PortGpuDeregistration,
                         testing::Combine(testing::Bool(), testing::Bool()), [](const auto &info) {
                             return std::string(std::get<0>(info.param) ? "Mapped" : "Ring") +
                                    (std::get<1>(info.param) ? "OtherThread" : "SameThread");
                         });

/** The peer maps the memory and writes it by its own GPU. */
FreshProcess mapped_put("deregistered-during-a-mapped-put", [] {
    constexpr size_t kMapped = 1 << 20;
    Pair pair(1);
    CHECK(pair.start());
    pair.peer.allocate(kMapped);
    Buffer local(MemoryKind::device, kMapped);
    Registration registration(local.data(), kMapped);
    for (uint64_t i = 0; i < 60; ++i) {
        pair.peer.fill(i);
        CHECK(pair.peer.put(registration.named(), kMapped) == Status::ok);
        CHECK(local.check(0, kMapped, i, 0).empty());
    }
    pair.peer.fill(100);
    pair.peer.simulate("SIMCUDA_DELAY_US", kSlow);
    pair.peer.begin_put(registration.named(), kMapped);
    CHECK(progress_until({&*pair.port},
                         [&] { return is_written(*pair.port, registration.at().registration); }));
    registration.end();
    local.fill(2);
    CHECK(pair.peer.end_put() == Status::gpu_error);
    CHECK(local.check(0, kMapped, 2, 0).empty());
    pair.peer.simulate("SIMCUDA_DELAY_US", kUsual);
    return pair.peer.finish();
});

TEST(PortGpuDeregistrationMapped, NothingIsWrittenByThePeerAfterIt) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(mapped_put.run(), 0);
}

/** Each waits for the end of the other's put, of which the other tells. */
FreshProcess both_put("both-deregister-during-puts", [] {
    constexpr size_t kMapped = 1 << 20;
    Pair pair(1);
    CHECK(pair.start());
    const LogCapture log;
    const RemoteMemory remote = pair.peer.allocate(kMapped);
    Buffer local(MemoryKind::device, kMapped);
    Buffer source(MemoryKind::device, kMapped);
    Registration registration(local.data(), kMapped);
    for (uint64_t i = 0; i < 60; ++i) {
        CHECK(pair.peer.put(registration.named(), kMapped) == Status::ok);
        CHECK(pair.put(source.data(), kMapped, remote) == Status::ok);
    }
    pair.peer.simulate("SIMCUDA_DELAY_US", kSlow);
    set_simulation("SIMCUDA_DELAY_US", kSlow);
    Outcome outcome;
    CHECK(pair.peer.connection().put(source.data(), kMapped, remote, nullptr,
                                     outcome.completion()) == Status::in_progress);
    pair.peer.begin_put_and_deregister(registration.named(), kMapped);
    while (!is_written(*pair.port, registration.at().registration)) {  // and progresses nothing
        std::this_thread::yield();
    }
    registration.end();
    CHECK(log.count("does not end a copy") == 0);
    local.fill(2);
    CHECK(pair.peer.end_put_and_deregister() == 0);
    CHECK(local.check(0, kMapped, 2, 0).empty());
    CHECK(progress_until({&*pair.port}, [&] { return outcome.done(); }));
    set_simulation("SIMCUDA_DELAY_US", kUsual);
    pair.peer.simulate("SIMCUDA_DELAY_US", kUsual);
    return pair.peer.finish();
});

TEST(PortGpuDeregistrationMapped, IsNotHeldUpByOwnPuts) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(both_put.run(), 0);
}

}  // namespace
}  // namespace gpushm
