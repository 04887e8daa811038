// SPDX-License-Identifier: BSD-3-Clause
// WakeSocket: whoever is woken can see it, however many others sleep.
#include "core/shm/wake_socket.hpp"

#include "test/gtest/core/support.hpp"
#include "test/gtest/core/wrapped_calls.hpp"

#include <gtest/gtest.h>

#include <poll.h>

#include <algorithm>
#include <vector>

namespace gpushm {
namespace {

/** A sleeper and the name that it is woken by. */
struct Sleeper {
    Cookie cookie = Cookie::random();
    WakeSocket socket = std::move(*WakeSocket::create(cookie));

    bool woken() const {
        pollfd event = {socket.fd(), POLLIN, 0};
        return poll(&event, 1, 0) == 1;
    }
};

TEST(WakeSocket, OneProcessWakesMoreSleepersThanItsSendBufferHolds) {
    std::vector<Sleeper> sleepers(400);  // 278 unread datagrams fill the usual send buffer
    const size_t descriptors = test::open_descriptors();
    for (const Sleeper &sleeper : sleepers) {
        EXPECT_FALSE(sleeper.woken());
        wake(sleeper.cookie);
    }
    const auto woken = [](const Sleeper &sleeper) { return sleeper.woken(); };
    EXPECT_EQ(std::count_if(sleepers.begin(), sleepers.end(), woken), 400);
    EXPECT_EQ(test::open_descriptors(), descriptors);
}

TEST(WakeSocket, OneThatIsWokenOftenSleepsAgainWhenDrained) {
    Sleeper sleeper;
    for (int i = 0; i < 100; ++i) {
        wake(sleeper.cookie);
        ASSERT_TRUE(sleeper.woken());
    }
    sleeper.socket.drain();
    EXPECT_FALSE(sleeper.woken());
    wake(sleeper.cookie);
    EXPECT_TRUE(sleeper.woken());
}

/** Processes of other users can send there as well. */
TEST(WakeSocket, ASenderThatNeverStopsHoldsUpNobody) {
    Sleeper sleeper;
    const test::EndlessDatagrams datagrams;
    sleeper.socket.drain();
    EXPECT_FALSE(datagrams.all_taken());
}

}  // namespace
}  // namespace gpushm
