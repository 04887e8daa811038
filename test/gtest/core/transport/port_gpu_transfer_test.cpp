// SPDX-License-Identifier: BSD-3-Clause
// Transfers between all kinds of memory, and the end of an owner's copies.
#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/core/transport/port_support.hpp"

#include <algorithm>
#include <thread>

namespace gpushm {
namespace {

using namespace test;

constexpr char kOwner = 0;

struct Kinds {
    MemoryKind source;
    MemoryKind target;
};

/** Two ports, of which a starts everything. */
class PortGpuTransfers : public GpuTest {
protected:
    ~PortGpuTransfers() override {
        a_.destroy();
        b_.destroy();
    }

    Status start(bool put, Buffer &source, size_t source_at, Buffer &target, size_t target_at,
                 size_t length, const Registration &registration, const Completion &completion,
                 const void *owner = nullptr) {
        return put ? connection_.put(source.data() + source_at, length, registration.at(target_at),
                                     owner, completion)
                   : connection_.get(target.data() + target_at, length, registration.at(source_at),
                                     owner, completion);
    }
    void make_slow(const char *delay_us) {
        if (simulated()) {
            set_simulation("SIMCUDA_DELAY_US", delay_us);
        }
    }

    TestPort a_;
    TestPort b_;
    Connection &connection_ = a_.connection(b_);
};

class PortGpuKinds : public PortGpuTransfers, public testing::WithParamInterface<Kinds> {
protected:
    /** Every length at misaligned places of buffers with canaries. */
    void run(const std::vector<size_t> &lengths) {
        const size_t room = *std::max_element(lengths.begin(), lengths.end()) + 64;
        Buffer source(GetParam().source, room);
        Buffer target(GetParam().target, room);
        source.fill(1);
        std::vector<unsigned char> pattern(room);
        uint64_t around = 100;
        for (const size_t length : lengths) {
            for (const bool put : {true, false}) {
                SCOPED_TRACE(std::string(put ? "put of " : "get of ") + std::to_string(length));
                const Registration registration(put ? target.data() : source.data(), room);
                const size_t target_at = 1 + length % 13;
                target.fill(++around);
                Outcome outcome;
                ASSERT_EQ(start(put, source, 0, target, target_at, length, registration,
                                outcome.completion()),
                          Status::in_progress);
                ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
                ASSERT_EQ(outcome.status, Status::ok);
                ASSERT_EQ(target.check(target_at, length, 1, around), "");
            }
        }
    }
};

TEST_P(PortGpuKinds, EveryLengthArrivesExactly) {
    std::vector<size_t> lengths;
    for (size_t length = 1; length <= 130; length += kSanitized ? 3 : 1) {
        lengths.push_back(length);
    }
    run(lengths);
    lengths.clear();
    for (const size_t chunk : {16u << 10, 32u << 10, 64u << 10}) {
        for (const size_t count : {1, 2, 5}) {
            lengths.insert(lengths.end(), {count * chunk - 1, count * chunk, count * chunk + 1});
        }
    }
    run(lengths);
}

TEST_P(PortGpuKinds, LongOnesArriveExactly) {
    run({(1 << 20) + 1});
    const bool device = GetParam().source == MemoryKind::device;
    if (device || GetParam().target == MemoryKind::device) {
        run({kSanitized ? 3u << 20 : 16u << 20});
    }
}

TEST_P(PortGpuKinds, WithoutARingTheyArriveToo) {
    TestPort a(kNoRing);
    TestPort b(kNoRing);
    Buffer source(GetParam().source, 70000);
    Buffer target(GetParam().target, 70000);
    source.fill(1);
    const Registration to(target.data(), 70000);
    const Registration from(source.data(), 70000);
    for (const size_t length :
         {size_t{1}, size_t{kSlotBytes}, size_t{kSlotBytes} + 1, size_t{69999}}) {
        Outcome put;
        Outcome get;
        target.fill(2);
        ASSERT_EQ(a.connection(b).put(source.data(), length, to.at(), nullptr, put.completion()),
                  Status::in_progress);
        ASSERT_TRUE(progress_until({&a, &b}, [&] { return put.done(); }));
        EXPECT_EQ(put.status, Status::ok);
        EXPECT_EQ(target.check(0, length, 1, 2), "");
        target.fill(3);
        ASSERT_EQ(a.connection(b).get(target.data(), length, from.at(), nullptr, get.completion()),
                  Status::in_progress);
        ASSERT_TRUE(progress_until({&a, &b}, [&] { return get.done(); }));
        EXPECT_EQ(get.status, Status::ok);
        EXPECT_EQ(target.check(0, length, 1, 3), "");
    }
}

std::vector<Kinds> all_pairs() {
    std::vector<Kinds> pairs;
    for (const MemoryKind source : kAllKinds) {
        for (const MemoryKind target : kAllKinds) {
            pairs.push_back({source, target});
        }
    }
    return pairs;
}

INSTANTIATE_TEST_SUITE_P(Kinds, PortGpuKinds, testing::ValuesIn(all_pairs()), [](const auto &info) {
    return std::string(memory_kind_name(info.param.source)) + "To" +
           memory_kind_name(info.param.target);
});

TEST_F(PortGpuTransfers, ManyAtOnceInBothDirections) {
    if (simulated()) {
        set_simulation("SIMCUDA_SEED", "3");
    }
    struct One {
        One(MemoryKind from, MemoryKind to, size_t length)
            : source(from, length),
              target(to, length),
              to_target(target.data(), length),
              to_source(source.data(), length) {}
        Buffer source;
        Buffer target;
        Registration to_target;
        Registration to_source;
        Outcome outcome;
    };
    Random random(5);
    std::deque<One> all;
    for (size_t i = 0; i < 48; ++i) {
        const size_t length = 1 + random.below(150000);
        One &one = all.emplace_back(kAllKinds[i % 4], kAllKinds[i / 4 % 4], length);
        one.source.fill(i);
        TestPort &from = i % 3 == 0 ? b_ : a_;
        Connection &connection = i % 3 == 0 ? b_.connection(a_) : connection_;
        const Status status = i % 2 == 0
                                  ? connection.put(one.source.data(), length, one.to_target.at(),
                                                   nullptr, one.outcome.completion())
                                  : connection.get(one.target.data(), length, one.to_source.at(),
                                                   nullptr, one.outcome.completion());
        ASSERT_EQ(status, Status::in_progress);
        from->progress();
    }
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] {
        return std::all_of(all.begin(), all.end(),
                           [](const One &one) { return one.outcome.done(); });
    }));
    for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(all[i].outcome.status, Status::ok);
        EXPECT_EQ(all[i].target.check(0, 0, 0, i), "") << "transfer " << i;
    }
    settle({&a_, &b_});
    EXPECT_TRUE(a_->idle() && b_->idle());
    if (simulated()) {
        set_simulation("SIMCUDA_SEED", "0");
    }
}

TEST_F(PortGpuTransfers, CancelledOwnersMemoryIsLeftAlone) {
    constexpr size_t kBytes = 1 << 20;
    Buffer local(MemoryKind::device, kBytes);
    Buffer remote(MemoryKind::device, kBytes);
    const Registration registration(remote.data(), kBytes);
    for (const bool put : {true, false}) {
        for (int moment = 0; moment < 6; ++moment) {
            SCOPED_TRACE(moment);
            local.fill(1);
            remote.fill(2);
            make_ring_ready(a_, b_);
            make_ring_ready(b_, a_);
            make_slow("3000");
            Outcome outcome;
            ASSERT_EQ(put ? connection_.put(local.data(), kBytes, registration.at(), &kOwner,
                                            outcome.completion())
                          : connection_.get(local.data(), kBytes, registration.at(), &kOwner,
                                            outcome.completion()),
                      Status::in_progress);
            for (int i = 0; i < moment; ++i) {
                a_->progress();
                b_->progress();
                std::this_thread::sleep_for(std::chrono::milliseconds(moment % 2 * 2));
            }
            connection_.cancel(&kOwner);
            make_slow("5");
            local.fill(3);
            if (put) {
                remote.fill(3);  // what was sent before may still arrive: it is older
                settle({&a_, &b_});
            } else {
                settle({&a_, &b_});
                EXPECT_EQ(local.check(0, 0, 0, 3), "") << "written after the cancel";
            }
            EXPECT_EQ(outcome.calls, 0u);
        }
    }
}

TEST_F(PortGpuTransfers, NoCopyRunsAfterTheLinkFailed) {
    if (!simulated()) {
        GTEST_SKIP() << "needs a copy that lasts";
    }
    Buffer local(MemoryKind::device, 4096);
    Buffer remote(MemoryKind::host, 4096);
    remote.fill(1);
    const Registration registration(remote.data(), 4096);
    make_ring_ready(b_, a_);
    Outcome outcome;
    ASSERT_EQ(connection_.get(local.data(), 4096, registration.at(), nullptr, outcome.completion()),
              Status::in_progress);
    b_->progress();  // the data lies in the ring
    make_slow("20000");
    a_->progress();  // the copy out of it runs
    connection_.fail();
    EXPECT_EQ(outcome.calls, 1u);
    EXPECT_EQ(outcome.status, Status::peer_failed);
    make_slow("5");
    local.fill(2);
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    EXPECT_EQ(local.check(0, 0, 0, 2), "");
}

/** The transfer goes on after the application took its memory back: nothing must break. */
TEST_F(PortGpuTransfers, MemoryMayBeFreedAtOnceAfterACancel) {
    constexpr size_t kBytes = 1 << 20;
    Buffer remote(MemoryKind::device, kBytes);
    const Registration registration(remote.data(), kBytes);
    make_slow("2000");
    const LogCapture log;
    for (const bool put : {true, false}) {
        for (int moment = 0; moment < 6; ++moment) {
            Outcome outcome;
            {
                Buffer local(MemoryKind::device, kBytes);
                ASSERT_EQ(put ? connection_.put(local.data(), kBytes, registration.at(), &kOwner,
                                                outcome.completion())
                              : connection_.get(local.data(), kBytes, registration.at(), &kOwner,
                                                outcome.completion()),
                          Status::in_progress);
                for (int i = 0; i < moment; ++i) {
                    a_->progress();
                    b_->progress();
                }
                connection_.cancel(&kOwner);
            }
            settle({&a_, &b_});
            EXPECT_EQ(outcome.calls, 0u);
            EXPECT_EQ(log.count("failed"), 0u);
        }
    }
}

TEST_F(PortGpuTransfers, ThreadWithoutAContextMayProgress) {
    Buffer source(MemoryKind::device, 300000);
    Buffer target(MemoryKind::device, 300000);
    source.fill(1);
    const Registration registration(target.data(), 300000);
    std::thread other([&] {
        Outcome outcome;
        EXPECT_EQ(connection_.put(source.data(), 300000, registration.at(), nullptr,
                                  outcome.completion()),
                  Status::in_progress);
        EXPECT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
        EXPECT_EQ(outcome.status, Status::ok);
        EXPECT_EQ(current_context(), nullptr);
    });
    other.join();
    EXPECT_EQ(target.check(0, 300000, 1, 0), "");
}

}  // namespace
}  // namespace gpushm
