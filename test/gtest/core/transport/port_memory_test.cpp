// SPDX-License-Identifier: BSD-3-Clause
// Allocations that fail, one after the other: what was asked for is done, or is not begun and the
// caller is told. Every operation that was begun ends, once. What comes afterwards works.
#include "test/gtest/core/transport/port_support.hpp"

#include "core/base/no_throw.hpp"

#include "test/gtest/core/wrapped_calls.hpp"

#include <algorithm>
#include <ctime>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 300000;

/** What one operation reads and writes. */
struct Transfer {
    explicit Transfer(size_t length = kBytes) : local(length), remote(length) {}

    Status put(Connection &connection) {
        return connection.put(local.data(), local.size(), registration.at(), nullptr,
                              outcome.completion());
    }
    Status get(Connection &connection) {
        return connection.get(local.data(), local.size(), memory(), nullptr, outcome.completion());
    }
    /** Also for a port that reads by CMA. */
    RemoteMemory memory() const {
        RemoteMemory named = registration.at();
        named.buffer.owner = process_cookie().low;
        return named;
    }

    std::vector<unsigned char> local;
    std::vector<unsigned char> remote;
    Registration registration{remote.data(), remote.size()};
    Outcome outcome;
};

/** Two ports that know each other; what they receive is counted. */
struct Ports {
    explicit Ports(const PortConfig &config = kSmallPort) : a(config), b(config) {
        for (TestPort *port : {&a, &b}) {
            port->on_message = [this](uint8_t, const unsigned char *, size_t) { ++messages; };
        }
        to_b = &a.connection(b);
        b.connection(a);
    }

    /** A transfer in each direction, and a message. */
    void expect_all_works() {
        for (const bool is_put : {true, false}) {
            Transfer transfer;
            std::vector<unsigned char> &from = is_put ? transfer.local : transfer.remote;
            const std::vector<unsigned char> &to = is_put ? transfer.remote : transfer.local;
            fill_pattern(from.data(), kBytes, 7);
            ASSERT_EQ(is_put ? transfer.put(*to_b) : transfer.get(*to_b), Status::in_progress);
            ASSERT_TRUE(progress_until({&a, &b}, [&] { return transfer.outcome.done(); }));
            EXPECT_EQ(transfer.outcome.status, Status::ok);
            EXPECT_EQ(pattern_mismatch(to.data(), kBytes, 7), kBytes);
        }
        const unsigned before = messages;
        ASSERT_EQ(to_b->am_short(1, 5, nullptr, 0), Status::ok);
        ASSERT_TRUE(progress_until({&a, &b}, [&] { return messages == before + 1; }));
    }

    unsigned messages = 0;
    TestPort a;
    TestPort b;
    Connection *to_b = nullptr;
};

/** Calls `body` while one allocation after the other fails, until there are no more; `body` says
 * whether it has met it. */
template <typename Body>
void for_each_failing_allocation(unsigned at_least, Body body) {
    unsigned n = 0;
    while (body(n) && !testing::Test::HasFatalFailure()) {
        ++n;
    }
    EXPECT_GE(n, at_least) << "allocations that can fail";
}

using StartOperation = Status (Transfer::*)(Connection &connection);

void expect_whole_or_nothing(const PortConfig &config, StartOperation begin, unsigned at_least) {
    for_each_failing_allocation(at_least, [&](unsigned n) {
        Ports ports(config);
        Transfer transfer;
        Status status = Status::out_of_memory;
        bool failed = false;
        {
            const FailingHeap heap(n);
            as_possible([&] { status = (transfer.*begin)(*ports.to_b); });
            failed = heap.has_failed();
        }
        EXPECT_TRUE(failed || status == Status::in_progress) << n;
        if (status == Status::in_progress) {
            EXPECT_TRUE(progress_until({&ports.a, &ports.b}, [&] {
                return transfer.outcome.done();
            })) << n;
            EXPECT_EQ(transfer.outcome.status, Status::ok);
        }
        ports.expect_all_works();
        Outcome flushed;
        EXPECT_EQ(ports.to_b->flush(nullptr, flushed.completion()), Status::ok)
            << "nothing is left of it, " << n;
        EXPECT_EQ(transfer.outcome.calls, status == Status::in_progress ? 1u : 0u) << n;
        return failed;
    });
}

TEST(PortMemory, APutIsBegunAsAWholeOrNotAtAll) {
    expect_whole_or_nothing(kSmallPort, &Transfer::put, 2);
}

TEST(PortMemory, AGetIsBegunAsAWholeOrNotAtAll) {
    expect_whole_or_nothing(kSmallPort, &Transfer::get, 2);
}

TEST(PortMemory, AGetThatBothCopyIsBegunAsAWholeOrNotAtAll) {
    expect_whole_or_nothing(kCmaPort, &Transfer::get, 3);
}

TEST(PortMemory, AFlushIsBegunAsAWholeOrNotAtAll) {
    for_each_failing_allocation(0, [](unsigned n) {
        Ports ports;
        Transfer transfer;
        Outcome flushed;
        EXPECT_EQ(transfer.put(*ports.to_b), Status::in_progress);
        bool failed = false;
        bool begun = false;
        {
            const FailingHeap heap(n);
            begun = as_possible([&] { ports.to_b->flush(nullptr, flushed.completion()); });
            failed = heap.has_failed();
        }
        EXPECT_TRUE(progress_until({&ports.a, &ports.b}, [&] { return transfer.outcome.done(); }));
        settle({&ports.a, &ports.b});
        EXPECT_EQ(flushed.calls, begun ? 1u : 0u);
        return failed;
    });
}

/** The user of a forced close is told of each, or nothing was cancelled. */
TEST(PortMemory, ACancelHandsOutEveryCompletion) {
    for_each_failing_allocation(1, [](unsigned n) {
        Ports ports;
        Transfer put;
        Transfer get;
        EXPECT_EQ(put.put(*ports.to_b), Status::in_progress);
        EXPECT_EQ(get.get(*ports.to_b), Status::in_progress);
        std::vector<Completion> ended;
        bool failed = false;
        bool cancelled = false;
        {
            const FailingHeap heap(n);
            cancelled = as_possible([&] { ports.to_b->cancel(nullptr, &ended); });
            failed = heap.has_failed();
        }
        if (cancelled) {
            EXPECT_EQ(ended.size(), 2u);
        } else {
            EXPECT_TRUE(progress_until({&ports.a, &ports.b},
                                       [&] { return put.outcome.done() && get.outcome.done(); }));
        }
        ports.expect_all_works();
        return failed;
    });
}

/** On either side, in whatever is done for transfers of both kinds and their messages. */
void expect_every_end(const PortConfig &config, unsigned at_least) {
    for_each_failing_allocation(at_least, [&](unsigned n) {
        Ports ports(config);
        Transfer put;
        Transfer get;
        EXPECT_EQ(put.put(*ports.to_b), Status::in_progress);
        EXPECT_EQ(get.get(*ports.to_b), Status::in_progress);
        bool failed = false;
        {
            const FailingHeap heap(n);
            const Deadline deadline;
            while (!(put.outcome.done() && get.outcome.done()) && !deadline.passed()) {
                for (TestPort *port : {&ports.a, &ports.b}) {
                    as_possible([&] { (*port)->progress(); });  // as for UCX
                }
            }
            failed = heap.has_failed();
        }
        for (const Transfer *transfer : {&put, &get}) {
            EXPECT_EQ(transfer->outcome.calls, 1u) << n;
            EXPECT_TRUE(transfer->outcome.status == Status::ok ||
                        (failed && transfer->outcome.status == Status::peer_failed))
                << n;
        }
        settle({&ports.a, &ports.b});
        EXPECT_EQ(put.outcome.calls + get.outcome.calls, 2u) << n;
        if (put.outcome.status == Status::ok && get.outcome.status == Status::ok &&
            !ports.to_b->failed()) {
            ports.expect_all_works();
        }
        Ports(config).expect_all_works();
        return failed;
    });
}

TEST(PortMemory, WhatIsUnderWayEndsOnce) {
    expect_every_end(kSmallPort, 5);
}

TEST(PortMemory, WhatBothCopyEndsOnce) {
    expect_every_end(kCmaPort, 3);
}

TEST(PortMemory, ALinkIsMadeAsAWholeOrNotAtAll) {
    for_each_failing_allocation(3, [](unsigned n) {
        TestPort a;
        TestPort b;
        bool failed = false;
        {
            const FailingHeap heap(n);
            const char *why = "";
            as_possible([&] { a->connect(b->address(), &why); });
            failed = heap.has_failed();
        }
        EXPECT_EQ(a.connection(b).am_short(1, 5, nullptr, 0), Status::ok);
        EXPECT_TRUE(progress_until({&a, &b}, [&] { return b.messages.size() == 1; })) << n;
        return failed;
    });
}

/** Of the CPU; what others do on the machine does not count. */
double seconds_of_this_thread() {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/** For so many that are under way at once, on one connection. */
double seconds_for(size_t count, StartOperation begin) {
    Ports ports;
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (size_t i = 0; i < count; ++i) {
        transfers.push_back(std::make_unique<Transfer>(64));
    }
    const double before = seconds_of_this_thread();
    for (const auto &transfer : transfers) {
        EXPECT_EQ(((*transfer).*begin)(*ports.to_b), Status::in_progress);
    }
    EXPECT_TRUE(progress_until({&ports.a, &ports.b}, [&] {
        const size_t done = count;
        return transfers[done - 1]->outcome.done() && transfers[0]->outcome.done();
    }));
    settle({&ports.a, &ports.b});
    const double seconds = seconds_of_this_thread() - before;
    for (const auto &transfer : transfers) {
        EXPECT_EQ(transfer->outcome.calls, 1u);
        EXPECT_EQ(transfer->outcome.status, Status::ok);
    }
    return seconds;
}

/** The least of several times: what disturbs a measurement makes it longer. */
double least_seconds_for(size_t count, StartOperation begin) {
    double least = seconds_for(count, begin);
    for (int i = 0; i < 4; ++i) {
        least = std::min(least, seconds_for(count, begin));
    }
    return least;
}

/** Eight times as many take eight times as long, and about three times that where they do not fit
 * the processor's cache. Work that grows with their square would take 64 times as long. */
TEST(PortMemory, ThousandsUnderWayCostNoMoreEach) {
    for (const StartOperation begin : {&Transfer::put, &Transfer::get}) {
        seconds_for(1250, begin);  // makes what a process keeps
        const double few = least_seconds_for(1250, begin);
        EXPECT_LT(least_seconds_for(10000, begin), 40 * few) << few << " s for 1250";
    }
}

}  // namespace
}  // namespace gpushm
