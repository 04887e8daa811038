// SPDX-License-Identifier: BSD-3-Clause
// Memory or descriptors that are used up while ports are made, connect and make their rings: each
// call that takes some fails once. Something else is done, or the caller is told; nothing is left
// behind; and what failed works later.
#include "test/gtest/core/transport/port_support.hpp"

#include "core/cuda/cuda_driver.hpp"

#include "test/gtest/core/wrapped_calls.hpp"

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 300000;

/** Calls `body` with what was prepared, and one call failing after the other, until there is none
 * left to fail. */
template <typename Prepared, typename Body>
void for_each_failing_call(unsigned at_least, Body body) {
    unsigned n = 0;
    for (bool failed = true; failed && !testing::Test::HasFatalFailure(); ++n) {
        const LogCapture log;
        Prepared prepared;
        const FailingCall failing(n);
        body(prepared, failing, log);
        failed = failing.name() != nullptr;
    }
    EXPECT_GT(n, at_least) << "calls that can fail";
}

struct Nothing {};

struct Ports {
    TestPort a;
    TestPort b;
};

struct ConnectedPorts : Ports {
    ConnectedPorts() {
        a.connection(b);
        b.connection(a);
    }
};

TEST(PortExhaustion, PortThatCannotBeMadeIsNoneAndLeavesNothing) {
    const PortCallbacks nobody = {nullptr, [](void *, uint8_t, void *, size_t) {},
                                  [](void *, Connection &) {}};
    Port::create(kSmallPort, nobody);  // makes what a process keeps
    const size_t descriptors = open_descriptors();
    const size_t mappings = mappings_named("gpushm");
    for_each_failing_call<Nothing>(
        4, [&](Nothing &, const FailingCall &failing, const LogCapture &log) {
            auto port = Port::create(kSmallPort, nobody);
            EXPECT_EQ(port == nullptr, failing.name() != nullptr);
            if (port == nullptr) {
                EXPECT_EQ(log.count(""), 1u) << failing.name();
                EXPECT_EQ(log.count("cannot"), 1u) << failing.name();
            }
            port.reset();
            EXPECT_EQ(open_descriptors(), descriptors) << failing.name();
            EXPECT_EQ(mappings_named("gpushm"), mappings) << failing.name();
        });
}

TEST(PortExhaustion, PeerThatCannotBeReachedNowCanBeLater) {
    for_each_failing_call<Ports>(
        2, [](Ports &ports, const FailingCall &failing, const LogCapture &) {
            const char *why = nullptr;
            if (ports.a->connect(ports.b->address(), &why) == nullptr) {
                ASSERT_NE(failing.name(), nullptr);
                EXPECT_NE(std::string(why).find("ulimit"), std::string::npos) << why;
            }
            ASSERT_EQ(ports.a.connection(ports.b).am_short(1, 5, nullptr, 0), Status::ok);
            settle({&ports.a, &ports.b});
            EXPECT_EQ(ports.b.messages.size(), 1u);
        });
}

/** A transfer in each direction over ports that are connected. */
void expect_transfers(TestPort &a, TestPort &b) {
    std::vector<unsigned char> local(kBytes);
    std::vector<unsigned char> remote(kBytes);
    const Registration registration(remote.data(), kBytes);
    for (const bool put : {true, false}) {
        fill_pattern(put ? local.data() : remote.data(), kBytes, put);
        Outcome outcome;
        Connection &connection = a.connection(b);
        ASSERT_EQ(put ? connection.put(local.data(), kBytes, registration.at(), nullptr,
                                       outcome.completion())
                      : connection.get(local.data(), kBytes, registration.at(), nullptr,
                                       outcome.completion()),
                  Status::in_progress);
        ASSERT_TRUE(progress_until({&a, &b}, [&] { return outcome.done(); }));
        EXPECT_EQ(outcome.status, Status::ok);
        EXPECT_EQ(pattern_mismatch(put ? remote.data() : local.data(), kBytes, put), kBytes);
    }
}

TEST(PortExhaustion, TransfersWorkWithoutARing) {
    CudaDriver::get();  // says once that there is none
    for_each_failing_call<ConnectedPorts>(
        6, [](ConnectedPorts &ports, const FailingCall &failing, const LogCapture &log) {
            expect_transfers(ports.a, ports.b);
            EXPECT_LE(log.count("cannot"), failing.name() != nullptr ? 1u : 0u);
            expect_transfers(ports.a, ports.b);
        });
}

}  // namespace
}  // namespace gpushm
