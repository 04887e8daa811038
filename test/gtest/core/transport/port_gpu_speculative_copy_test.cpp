// SPDX-License-Identifier: BSD-3-Clause
// Speculative copies: copies into the ring that begin before the peer asks for them.
#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/core/transport/port_support.hpp"

#include <cstring>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kRoom = 4096;
constexpr size_t kLongAlone = 256 << 10;

/** Memory that a message of the owner tells of, as UCP's rendezvous does. */
struct Announcement {
    const void *address;
    size_t length;
    uint64_t speculative_copy;

    static size_t pack(void *destination, void *argument) {
        auto *self = static_cast<Announcement *>(argument);
        MessageSender *sender = MessageSender::packing();
        self->speculative_copy = sender != nullptr
                                     ? sender->plan_speculative_copy(
                                           self->address, self->length,
                                           query_memory(self->address).kind == MemoryKind::device)
                                     : 0;
        memcpy(destination, self, sizeof(*self));
        return sizeof(*self);
    }
};

/** The number of the speculative copy; 0: none. */
uint64_t announce(Connection &owner, const unsigned char *address, size_t length) {
    Announcement announcement = {address, length, 0};
    size_t packed = 0;
    EXPECT_EQ(owner.am_pack(7, Announcement::pack, &announcement, &packed), Status::ok);
    return announcement.speculative_copy;
}

/** a owns device memory and tells b of it, b gets it into host memory. */
class PortGpuSpeculativeCopy : public GpuTest {
protected:
    void SetUp() override {
        source_.fill(0);
        for (int i = 0; i < 4; ++i) {  // so that the next get is likely to go through the ring
            exchange(1000);
        }
    }
    ~PortGpuSpeculativeCopy() override {
        a_.destroy();
        b_.destroy();
    }

    uint64_t announce(size_t length, size_t offset = 0) {
        return gpushm::announce(owner_, source_.data() + offset, length);
    }
    void get(size_t length, uint64_t speculative_copy, uint64_t pattern, size_t offset = 0) {
        target_.fill(1000 + pattern);
        RemoteMemory remote = registration_.at(offset);
        remote.speculative_copy = speculative_copy;
        Outcome outcome;
        ASSERT_EQ(
            reader_.get(target_.data() + offset, length, remote, nullptr, outcome.completion()),
            Status::in_progress);
        ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
        ASSERT_EQ(outcome.status, Status::ok);
        expected_.fill(1000 + pattern);
        bytes_.fill(pattern);
        memcpy(expected_.data() + offset, bytes_.data() + offset, length);
        ASSERT_EQ(memcmp(target_.data(), expected_.data(), kRoom), 0);
    }
    /** One message with fresh bytes; whether it had a speculative copy. */
    bool exchange(size_t length) {
        source_.fill(++pattern_);
        const uint64_t speculative_copy = announce(length);
        get(length, speculative_copy, pattern_);
        return speculative_copy != 0;
    }

    TestPort a_;
    TestPort b_;
    Connection &owner_ = a_.connection(b_);
    Connection &reader_ = b_.connection(a_);
    Buffer source_{MemoryKind::device, kRoom};
    Buffer target_{MemoryKind::host, kRoom};
    Buffer bytes_{MemoryKind::host, kRoom};     // what the source holds
    Buffer expected_{MemoryKind::host, kRoom};  // what the target must hold
    Registration registration_{source_.data(), kRoom};
    uint64_t pattern_ = 0;
};

/** Of two processes on one GPU, one copies for both: what the other would copy out of the ring
 * waits for a time slice. */
TEST_F(PortGpuSpeculativeCopy, IsNotTakenWhereOneProcessCopiesForTheGpu) {
    Buffer destination(MemoryKind::device, kRoom);
    GetRequest request = {};
    request.speculative_copy = announce(1000);
    ASSERT_NE(request.speculative_copy, 0u);
    const RemoteMemory remote = registration_.at(0);
    request.transfer_id = 1u << 20;  // of nobody
    request.address = remote.address;
    request.length = 1000;
    request.registration = remote.registration;
    request.buffer = make_buffer_key(query_memory(destination.data()));
    request.shared = {0, 1};
    owner_.transfers().receive_get_request(request);
    EXPECT_EQ(announce(1000), 0u) << "the ring is not the way of this pair";
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return !owner_.busy(); }));
}

TEST_F(PortGpuSpeculativeCopy, CopyBeginsWithTheMessage) {
    if (!simulated()) {
        GTEST_SKIP() << "counts calls";
    }
    source_.fill(++pattern_);
    reset_calls();
    const uint64_t speculative_copy = announce(1000);
    EXPECT_NE(speculative_copy, 0u);
    EXPECT_EQ(calls("cuMemcpyAsync"), 1u) << "at once";
    get(1000, speculative_copy, pattern_);
    EXPECT_EQ(calls("cuMemcpyAsync"), 1u) << "and not again";
}

/** Several would fill the ring. */
TEST_F(PortGpuSpeculativeCopy, OneThatIsAloneMayBeLonger) {
    PortConfig config = kSmallPort;
    config.ring_bytes = 2 << 20;
    config.gpu_chunk_bytes = kLongAlone;
    TestPort owner(config);
    TestPort reader(config);
    Buffer source(MemoryKind::device, kLongAlone + 1);
    Buffer target(MemoryKind::host, kLongAlone + 1);
    const Registration registration(source.data(), kLongAlone + 1);
    const auto announced = [&](size_t length) {
        return gpushm::announce(owner.connection(reader), source.data(), length);
    };
    const auto get = [&](size_t length, uint64_t speculative_copy, uint64_t pattern) {
        source.fill(pattern);
        target.fill(pattern + 1000);
        RemoteMemory remote = registration.at(0);
        remote.speculative_copy = speculative_copy;
        Outcome outcome;
        EXPECT_EQ(reader.connection(owner).get(target.data(), length, remote, nullptr,
                                               outcome.completion()),
                  Status::in_progress);
        EXPECT_TRUE(progress_until({&owner, &reader}, [&] { return outcome.done(); }));
        EXPECT_EQ(target.check(0, length, pattern, pattern + 1000), "");
    };
    for (uint64_t i = 0; i < 4; ++i) {
        get(1000, 0, i);
    }
    EXPECT_EQ(announced(kLongAlone + 1), 0u);
    source.fill(10);
    const uint64_t alone = announced(kLongAlone);
    EXPECT_NE(alone, 0u);
    EXPECT_EQ(announced(kLongAlone), 0u) << "another one waits";
    get(kLongAlone, alone, 10);
    owner.destroy();
    reader.destroy();
}

TEST_F(PortGpuSpeculativeCopy, FreshBytesEachTime) {
    for (size_t length = 1; length <= kRoom; length += 97) {
        ASSERT_TRUE(exchange(length));
    }
}

TEST_F(PortGpuSpeculativeCopy, ManyAreUnderWayAndAskedForInAnyOrder) {
    constexpr size_t kCount = 4;
    constexpr size_t kEach = kRoom / kCount;
    for (const bool reversed : {false, true}) {
        source_.fill(++pattern_);
        uint64_t speculative_copies[kCount];
        for (size_t i = 0; i < kCount; ++i) {
            speculative_copies[i] = announce(kEach, i * kEach);
            EXPECT_NE(speculative_copies[i], 0u);
        }
        for (size_t i = 0; i < kCount; ++i) {
            const size_t which = reversed ? kCount - 1 - i : i;
            get(kEach, speculative_copies[which], pattern_, which * kEach);
        }
    }
}

/** Host memory that a GPU gets: in the ring when the request comes. */
TEST_F(PortGpuSpeculativeCopy, HostMemoryIsCopiedWithTheMessage) {
    Buffer source(MemoryKind::host, kRoom);
    Buffer target(MemoryKind::device, kRoom);
    Registration registration(source.data(), kRoom);
    const auto exchange_of_host_memory = [&](size_t length, uint64_t pattern, bool overwrite) {
        source.fill(pattern);
        target.fill(1000 + pattern);
        Announcement announcement = {source.data(), length, 0};
        size_t packed = 0;
        EXPECT_EQ(owner_.am_pack(7, Announcement::pack, &announcement, &packed), Status::ok);
        if (overwrite) {
            source.fill(2000 + pattern);  // no sender may, but it shows when the bytes were read
        }
        RemoteMemory remote = registration.at(0);
        remote.speculative_copy = announcement.speculative_copy;
        Outcome outcome;
        EXPECT_EQ(reader_.get(target.data(), length, remote, nullptr, outcome.completion()),
                  Status::in_progress);
        EXPECT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
        EXPECT_EQ(outcome.status, Status::ok);
        EXPECT_EQ(target.check(0, length, pattern, 1000 + pattern), "") << length;
        return announcement.speculative_copy != 0;
    };
    uint64_t pattern = 100;
    EXPECT_FALSE(exchange_of_host_memory(1000, ++pattern, false))
        << "gets of GPU memory say nothing of those of host memory";
    exchange_of_host_memory(1000, ++pattern, false);
    for (size_t length = 1; length <= kRoom; length += 155) {
        EXPECT_TRUE(exchange_of_host_memory(length, ++pattern, true));
    }
    EXPECT_TRUE(exchange(1000)) << "of GPU memory as before";
}

/** Nobody asks for it, and its memory is freed before the copy is given to the driver. */
TEST_F(PortGpuSpeculativeCopy, MemoryThatIsFreedMeanwhileIsNotRead) {
    SKIP_UNLESS_SIMULATED();
    const LogCapture log;
    set_simulation("SIMCUDA_DELAY_US", "20000");
    reset_calls();
    EXPECT_NE(announce(1000), 0u);
    EXPECT_NE(announce(1000), 0u);
    {
        const Buffer freed(MemoryKind::device, kRoom);
        Announcement announcement = {freed.data(), 1000, 0};
        size_t packed = 0;
        EXPECT_EQ(owner_.am_pack(7, Announcement::pack, &announcement, &packed), Status::ok);
        EXPECT_NE(announcement.speculative_copy, 0u);
        EXPECT_EQ(calls("cuMemcpyAsync"), 2u) << "not submitted yet";
    }
    settle({&a_, &b_});
    set_simulation("SIMCUDA_DELAY_US", "5");
    EXPECT_EQ(calls("cuMemcpyAsync"), 2u);
    EXPECT_EQ(log.count("failed"), 0u);
    source_.fill(++pattern_);
    get(1000, 0, pattern_);
}

/** Another message at the same address: the bytes of the earlier one must never come for it. */
TEST_F(PortGpuSpeculativeCopy, EarlierBytesAreNotForALaterMessage) {
    source_.fill(++pattern_);
    const uint64_t unused = announce(1000);
    EXPECT_NE(unused, 0u);
    settle({&a_, &b_});
    source_.fill(++pattern_);
    const uint64_t later = announce(1000);
    EXPECT_NE(later, 0u);
    get(1000, later, pattern_);
    source_.fill(++pattern_);
    get(1000, unused, pattern_);  // it was given up
}

/** Part of it, or more: what was copied is not what is asked for. */
TEST_F(PortGpuSpeculativeCopy, OtherRangesAreCopiedAnew) {
    for (const size_t length : {size_t{999}, size_t{1001}}) {
        source_.fill(++pattern_);
        const uint64_t speculative_copy = announce(1000);
        get(length, speculative_copy, pattern_);
        exchange(1000);
        exchange(1000);
        exchange(1000);
    }
    source_.fill(++pattern_);
    get(1000, announce(1000, 16), pattern_);
    source_.fill(++pattern_);
    get(1000, UINT64_MAX, pattern_);  // a peer may say anything
}

/** Those that nobody asks for hold up nothing: neither what is sent through the ring later, nor
 * sleep, and they do not fill the ring. */
TEST_F(PortGpuSpeculativeCopy, UnusedOnesHoldUpNothing) {
    unsigned wasted = 0;
    for (int round = 0; round < 400; ++round) {
        wasted += announce(kRoom) != 0;
        settle({&a_, &b_});
    }
    EXPECT_GT(wasted, 0u);
    EXPECT_LE(wasted, 4u) << "as many as there were gets before";
    EXPECT_TRUE(a_->idle());
    EXPECT_TRUE(a_->arm());
    const size_t before = b_.messages.size();
    source_.fill(++pattern_);
    const Piece piece = {source_.data(), kRoom};
    for (int i = 0; i < 200; ++i) {
        ASSERT_EQ(
            send_when_possible(
                a_, b_, [&] { return owner_.am_pieces(9, nullptr, 0, &piece, 1, nullptr, {}); }),
            Status::in_progress);
    }
    ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return b_.messages.size() == before + 200; }));
    EXPECT_EQ(announce(1000), 0u) << "nobody asked for the last ones";
    exchange(1000);
    exchange(1000);
    EXPECT_TRUE(exchange(1000));
}

TEST_F(PortGpuSpeculativeCopy, CancelWaitsForTheCopy) {
    if (!simulated()) {
        GTEST_SKIP() << "needs slow copies";
    }
    set_simulation("SIMCUDA_DELAY_US", "30000");
    EXPECT_NE(announce(1000), 0u);
    EXPECT_FALSE(a_->idle());
    owner_.cancel(this);
    a_->progress();
    EXPECT_TRUE(a_->idle()) << "the source may be freed now";
}

TEST_F(PortGpuSpeculativeCopy, PeerMayClose) {
    EXPECT_NE(announce(1000), 0u);
    b_.destroy();
    settle({&a_});
    EXPECT_TRUE(a_->idle());
}

/** The 44th peer of a port has such a ring. */
TEST_F(GpuTest, NothingWaitsForRoomThatASpeculativeCopyTakes) {
    PortConfig config = kSmallPort;
    config.ring_bytes = 4 * kSlotBytes;
    for (const bool is_message : {false, true}) {
        TestPort a(config);
        TestPort b(config);
        Buffer source(MemoryKind::device, 65536);
        Buffer target(MemoryKind::host, 65536);
        const Registration memory(source.data(), 65536);
        const auto get = [&](size_t length) {
            Outcome end;
            EXPECT_EQ(
                b.connection(a).get(target.data(), length, memory.at(), nullptr, end.completion()),
                Status::in_progress);
            EXPECT_TRUE(progress_until({&a, &b}, [&] { return end.done(); })) << length;
        };
        for (int i = 0; i < 10; ++i) {
            get(8000);  // the ring stands at 80000 of 131584
        }
        EXPECT_NE(announce(a.connection(b), source.data(), 65536), 0u);  // at the ring's beginning
        settle({&a, &b});
        if (is_message) {
            const Piece piece = {source.data(), 20000};
            const auto send = [&] {
                return a.connection(b).am_pieces(1, nullptr, 0, &piece, 1, nullptr, {}) ==
                       Status::in_progress;
            };
            EXPECT_TRUE(progress_until({&a, &b}, send));
            EXPECT_TRUE(progress_until({&a, &b}, [&] { return b.messages.size() == 1; }));
        } else {
            get(65536);  // of another message
        }
        a.destroy();
        b.destroy();
    }
}

/** What a peer gets after its message was given up may have been written over. */
TEST_F(PortGpuSpeculativeCopy, AReplyWhoseMemoryIsNoLongerRegisteredHasFailed) {
    SKIP_UNLESS_SIMULATED();
    const LogCapture log;
    for (const bool speculative_copy : {false, true}) {
        source_.fill(++pattern_);
        set_simulation("SIMCUDA_DELAY_US", "20000");
        Outcome outcome;
        {
            const Registration given_up(source_.data(), 4096);
            RemoteMemory remote = given_up.at();
            remote.speculative_copy = speculative_copy ? announce(4096) : 0;
            EXPECT_EQ(remote.speculative_copy != 0, speculative_copy);
            ASSERT_EQ(reader_.get(target_.data(), 4096, remote, nullptr, outcome.completion()),
                      Status::in_progress);
            a_->progress();
            owner_.cancel(this);
        }
        ASSERT_TRUE(progress_until({&a_, &b_}, [&] { return outcome.done(); }));
        EXPECT_EQ(outcome.status, Status::gpu_error) << speculative_copy;
        set_simulation("SIMCUDA_DELAY_US", "5");
        settle({&a_, &b_});
    }
}

TEST_F(GpuTest, AShortReplyPassesALongOne) {
    PortConfig config = kSmallPort;
    config.ring_bytes = 1u << 20;
    constexpr size_t kLong = 16u << 20;
    TestPort a(config);
    TestPort b(config);
    Buffer source(MemoryKind::device, kLong);
    Buffer target(MemoryKind::host, kLong);
    Buffer small(MemoryKind::host, 4096);
    const Registration memory(source.data(), kLong);
    source.fill(1);
    Outcome ends[2];
    ASSERT_EQ(b.connection(a).get(target.data(), kLong, memory.at(), nullptr, ends[0].completion()),
              Status::in_progress);
    for (int i = 0; i < 20; ++i) {
        a->progress();
        b->progress();
    }
    ASSERT_FALSE(ends[0].done());
    ASSERT_EQ(b.connection(a).get(small.data(), 8, memory.at(), nullptr, ends[1].completion()),
              Status::in_progress);
    ASSERT_TRUE(progress_until({&a, &b}, [&] { return ends[1].done(); }));
    EXPECT_FALSE(ends[0].done());
    ASSERT_TRUE(progress_until({&a, &b}, [&] { return ends[0].done(); }));
    EXPECT_EQ(target.check(0, kLong, 1, 0), "");
    a.destroy();
    b.destroy();
}

}  // namespace
}  // namespace gpushm
