// SPDX-License-Identifier: BSD-3-Clause
// StandbyKernel: it copies exactly what it is told, is there when messages are waited for and gone
// otherwise, and what it did not do it says so.
#include "test/gtest/core/standby/standby_support.hpp"

#include "core/copy/copy_any.hpp"
#include "core/copy/copy_batch.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"
#include "core/shm/segment.hpp"
#include "core/standby/gpu_claims.hpp"
#include "core/standby/standby_demand.hpp"
#include "core/standby/standby_registry.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gpushm {
namespace {

using namespace test;
using State = StandbyKernel::State;

/** A page whose first reader waits until it is let go on; one at a time. */
class HeldPage {
public:
    HeldPage() {
        address_ = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        reached_ = false;
        let_go_ = false;
        struct sigaction action = {};
        action.sa_handler = hold;
        sigaction(SIGSEGV, &action, &before_);
    }
    HeldPage(const HeldPage &) = delete;
    HeldPage &operator=(const HeldPage &) = delete;
    ~HeldPage() {
        sigaction(SIGSEGV, &before_, nullptr);
        munmap(address_, kBytes);
    }
    const void *address() const { return address_; }
    bool reached() const { return reached_; }
    void let_go() { let_go_ = true; }

private:
    static void hold(int /*signal*/) {
        reached_ = true;
        while (!let_go_) {
        }
        mprotect(address_, kBytes, PROT_READ | PROT_WRITE);
    }

    static constexpr size_t kBytes = 4096;
    static inline void *address_;
    static inline std::atomic<bool> reached_;
    static inline std::atomic<bool> let_go_;
    struct sigaction before_ = {};
};

State await_end(StandbyKernel &kernel, StandbyTicket &ticket) {
    State state = State::waiting;
    while (state == State::waiting) {
        state = kernel.state(&ticket);
    }
    return state;
}

class Standby : public StandbyKernelTest {
protected:
    void SetUp() override {
        StandbyKernelTest::SetUp();
        if (!IsSkipped()) {
            make(kLongLife);
        }
    }

    void make(uint32_t life_ns, StandbyConfig::Mode mode = StandbyConfig::Mode::whenever_possible,
              uint32_t beat_ns = kBeat) {
        StandbyKernelTest::make({mode, beat_ns, life_ns});
    }

    /** Without a beat. */
    bool await_death() {
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (kernel_->alive() && std::chrono::steady_clock::now() < end) {
            std::this_thread::yield();
        }
        return !kernel_->alive();
    }

    State wait(StandbyTicket ticket) { return await_end(*kernel_, ticket); }
    /** Until a kernel serves it. */
    void copy(const StandbyJob &copy) {
        State state = State::not_served;
        for (int i = 0; i < 100 && state != State::served; ++i) {
            ASSERT_TRUE(await_life());
            StandbyTicket ticket;
            state = kernel_->give(copy, &ticket) ? wait(ticket) : State::not_served;
        }
        ASSERT_EQ(state, State::served);
    }

    /** `length` bytes from `offset` in `source` to `target` in `destination`, and nothing around;
     * `original` holds what the source is to hold. */
    void expect_exact(Buffer &original, Buffer &source, size_t offset, Buffer &destination,
                      size_t target, size_t length, uint64_t seed) {
        original.fill(seed);
        ASSERT_EQ(copy_any(source.data() + offset, original.data(), length), Status::ok);
        destination.fill(seed + 1);
        copy({destination.data() + target, source.data() + offset, length});
        ASSERT_EQ(destination.check(target, length, seed, seed + 1), "")
            << memory_kind_name(query_memory(source.data()).kind) << " to "
            << memory_kind_name(query_memory(destination.data()).kind) << ", " << length
            << " bytes from " << offset << " to " << target;
    }

    static constexpr uint32_t kBeat = 200'000;
    static constexpr uint32_t kLongLife = 1'000'000'000;
};

TEST_F(Standby, CopiesExactlyTheBytesThatItIsTold) {
    constexpr size_t kMax = 70000;
    Buffer original(MemoryKind::host, kMax);
    uint64_t seed = 0;
    for (const MemoryKind from : {MemoryKind::pinned, MemoryKind::device}) {
        for (const MemoryKind to : {MemoryKind::pinned, MemoryKind::device}) {
            Buffer source(from, kMax + 64);
            Buffer destination(to, kMax + 64);
            for (const size_t length :
                 {size_t{1}, size_t{2}, size_t{15}, size_t{16}, size_t{17}, size_t{2047},
                  size_t{2048}, size_t{2049}, size_t{4096}, size_t{65536}, kMax}) {
                for (const size_t offset : {0, 1, 4, 8, 16}) {
                    for (const size_t target : {size_t{16}, offset}) {
                        expect_exact(original, source, offset, destination, target, length, ++seed);
                        ++seed;
                    }
                }
            }
        }
    }
}

TEST_F(Standby, WritesNothingAround) {
    constexpr size_t kBytes = 4096;
    Buffer source(MemoryKind::pinned, kBytes);
    Buffer destination(MemoryKind::device, kBytes);
    source.fill(1);
    for (size_t length = 1; length < 130; ++length) {
        const size_t offset = 100 + length % 33;
        destination.fill(2);
        copy({destination.data() + offset, source.data(), length});
        EXPECT_EQ(destination.check(offset, length, 1, 2), "") << length;
    }
}

// The kernel counts its pieces from the line of 64 bytes in which a source begins.
TEST_F(Standby, CopiesFromEachPlaceOfALine) {
    constexpr size_t kBytes = 16384;
    Buffer original(MemoryKind::host, kBytes);
    Buffer source(MemoryKind::pinned, kBytes);
    Buffer destination(MemoryKind::device, kBytes);
    uint64_t seed = 0;
    for (const size_t length : {1, 16, 48, 63, 64, 65, 4032, 4048, 4096, 4097, 8192, 8300}) {
        for (size_t offset = 0; offset <= 64; ++offset) {
            for (const size_t target : {size_t{512}, 512 + offset, 512 + offset / 4}) {
                ASSERT_NO_FATAL_FAILURE(
                    expect_exact(original, source, offset, destination, target, length, ++seed));
                ++seed;
            }
        }
    }
}

/** All blocks of a cluster copy such ones, from 36 KiB on. */
TEST_F(Standby, CopiesLongOnesExactly) {
    constexpr size_t kMax = 1u << 20;
    Buffer original(MemoryKind::host, kMax);
    uint64_t seed = 0;
    for (const MemoryKind from : {MemoryKind::pinned, MemoryKind::device}) {
        for (const MemoryKind to : {MemoryKind::pinned, MemoryKind::device}) {
            Buffer source(from, kMax + 128);
            Buffer destination(to, kMax + 128);
            for (const size_t length : {size_t{32769}, size_t{36863}, size_t{36865}, size_t{131087},
                                        size_t{524288}, kMax - 3, kMax}) {
                for (const size_t offset : {0, 1, 4, 8, 16, 60}) {
                    const size_t target = 64 + (seed % 3 == 0 ? 16 : offset);
                    expect_exact(original, source, offset, destination, target, length, ++seed);
                    ++seed;
                }
            }
        }
    }
}

/** Given at once, so that one look of the kernel finds several, or all up to one that ends a batch.
 * Each is read anew right after it was written, by the next window: what a helping block still had
 * in its cache would show. */
TEST_F(Standby, CopiesLongOnesAmongShortOnes) {
    constexpr size_t kPiece = 200'000;
    constexpr size_t kPieces = 12;
    Buffer source(MemoryKind::pinned, kPieces * kPiece);
    Buffer between(MemoryKind::device, kPieces * kPiece);
    Buffer destination(MemoryKind::pinned, kPieces * kPiece);
    const auto length_of = [](size_t i, uint64_t round) {
        return (i + round) % 3 == 0 ? 1 + i * 700 : kPiece - i * 4099 - round % 64;
    };
    const auto window = [&](unsigned char *to, const unsigned char *from, uint64_t round) {
        std::vector<StandbyTicket> tickets(kPieces);
        size_t given = 0;
        while (given < kPieces &&
               kernel_->give({to + given * kPiece, from + given * kPiece, length_of(given, round),
                              from == source.data() && round % 2 == 0},
                             &tickets[given])) {
            ++given;
        }
        size_t served = 0;
        for (size_t i = 0; i < given; ++i) {
            served += wait(tickets[i]) == State::served ? 1 : 0;
        }
        return served;
    };
    size_t whole = 0;
    for (uint64_t round = 1; round <= 100; ++round) {
        source.fill(round);
        destination.fill(1000 + round);
        ASSERT_TRUE(await_life());
        if (window(between.data(), source.data(), round) != kPieces ||
            window(destination.data(), between.data(), round) != kPieces) {
            continue;  // its life was over
        }
        ++whole;
        Buffer expected(MemoryKind::host, kPieces * kPiece);
        expected.fill(1000 + round);
        for (size_t i = 0; i < kPieces; ++i) {
            memcpy(expected.data() + i * kPiece, source.data() + i * kPiece, length_of(i, round));
        }
        ASSERT_EQ(memcmp(expected.data(), destination.data(), kPieces * kPiece), 0) << round;
    }
    EXPECT_GT(whole, 0u);
}

/** The process that copies it further waits for that. */
TEST_F(Standby, TellsOfLongOnesThroughTheHostBetween) {
    SKIP_UNLESS_SIMULATED();
    constexpr size_t kBytes = 512u << 10;
    constexpr size_t kCopies = 8;
    Buffer source(MemoryKind::pinned, kBytes);
    Buffer destination(MemoryKind::device, kBytes);
    set_simulation("SIMCUDA_KERNEL_TIME_SCALE",
                   "5000");  // it stays where this thread has to wait for a processor
    set_simulation("SIMCUDA_SEED", "1");
    set_simulation("SIMCUDA_DELAY_US",
                   "10000");  // of each command up to three times that: it finds all the others
    std::vector<StandbyTicket> tickets;
    while (tickets.size() < kCopies) {
        ASSERT_TRUE(await_life());
        StandbyTicket ticket;
        if (kernel_->give({destination.data(), source.data(), kBytes, true}, &ticket)) {
            tickets.push_back(ticket);
        } else {  // its life is over
            std::for_each(tickets.begin(), tickets.end(),
                          [this](const StandbyTicket &given) { wait(given); });
            tickets.clear();
        }
    }
    EXPECT_EQ(wait(tickets[kCopies / 2 - 1]), State::served);
    EXPECT_EQ(kernel_->state(&tickets[kCopies - 1]), State::waiting);
    EXPECT_EQ(wait(tickets[kCopies - 1]), State::served);
    set_simulation("SIMCUDA_DELAY_US", "5");
    set_simulation("SIMCUDA_SEED", "0");
    set_simulation("SIMCUDA_KERNEL_TIME_SCALE", "50");
}

TEST_F(Standby, CarriesSmallPayloadInTheCommand) {
    constexpr size_t kBytes = 1024;
    Buffer source(MemoryKind::host, kBytes);
    Buffer destination(MemoryKind::device, kBytes);
    for (size_t length = 1; length <= kStandbyMostInline; ++length) {
        for (const size_t offset : {96, 97, 100, 104}) {
            source.fill(length);
            destination.fill(1000 + length);
            ASSERT_TRUE(await_life());
            State state = State::not_served;
            while (state != State::served) {
                ASSERT_TRUE(await_life());
                StandbyTicket ticket;
                if (kernel_->give({destination.data() + offset, source.data(), length, true},
                                  &ticket)) {
                    // Pageable memory, which no GPU reads, and which changes at once.
                    std::vector<unsigned char> kept(source.data(), source.data() + kBytes);
                    memset(source.data(), 0xee, kBytes);
                    state = wait(ticket);
                    memcpy(source.data(), kept.data(), kBytes);
                }
            }
            EXPECT_EQ(destination.check(offset, length, length, 1000 + length), "")
                << length << " bytes to " << offset;
        }
    }
}

/** Short ones and others, each behind others that the kernel may see with it or without. */
TEST_F(Standby, CarriesPayloadAmongOtherCommands) {
    constexpr size_t kPiece = 2048;
    constexpr size_t kPieces = 24;
    Buffer source(MemoryKind::pinned, kPieces * kPiece);
    Buffer destination(MemoryKind::device, kPieces * kPiece);
    std::vector<StandbyTicket> tickets;
    for (uint64_t round = 1; round <= 200; ++round) {
        source.fill(round);
        destination.fill(1000 + round);
        ASSERT_TRUE(await_life());
        Buffer expected(MemoryKind::host, kPieces * kPiece);
        expected.fill(1000 + round);
        tickets.clear();
        const auto length_of = [&](size_t i) {
            return 1 + (i * 389 + round * 53) % (i % 3 == 0 ? 1200 : kStandbyMostInline);
        };
        for (size_t i = 0; i < kPieces; ++i) {
            StandbyTicket ticket;
            if (!kernel_->give({destination.data() + i * kPiece, source.data() + i * kPiece,
                                length_of(i), i % 4 != 3},
                               &ticket)) {
                break;
            }
            tickets.push_back(ticket);
        }
        for (size_t i = 0; i < tickets.size(); ++i) {
            if (wait(tickets[i]) == State::served) {
                memcpy(expected.data() + i * kPiece, source.data() + i * kPiece, length_of(i));
            }
        }
        Buffer found(MemoryKind::host, kPieces * kPiece);
        ASSERT_EQ(copy_any(found.data(), destination.data(), kPieces * kPiece), Status::ok);
        EXPECT_EQ(memcmp(expected.data(), found.data(), kPieces * kPiece), 0) << round;
    }
}

/** What was read ahead is what is copied, each byte to its place and nothing around; sources and
 * destinations lie anyhow. */
TEST_F(Standby, CopiesWhatItHasReadAhead) {
    constexpr size_t kMax = kStandbyMostAhead;
    Buffer first(MemoryKind::pinned, 9000);
    Buffer next(MemoryKind::pinned, kMax + 128);
    uint64_t seed = 1;
    for (const MemoryKind to : {MemoryKind::device, MemoryKind::pinned}) {
        Buffer destination(to, kMax + 128);
        Buffer first_destination(MemoryKind::device, 9000);
        for (const size_t length :
             {size_t{97}, size_t{1000}, size_t{4096}, size_t{8192}, size_t{9999}, kMax - 1, kMax}) {
            for (const size_t offset : {0, 1, 4, 8, 16, 56, 63, 64}) {
                for (const size_t first_length : {size_t{100}, size_t{9000}}) {
                    const size_t target = seed % 3 == 0 ? offset : seed % 65;
                    first.fill(seed + 1);
                    next.fill(seed + 2);
                    destination.fill(seed);
                    StandbyJob job = {first_destination.data(), first.data(), first_length};
                    job.next = {seed, next.data() + offset, length};
                    copy(job);
                    job = {destination.data() + target, next.data() + offset, length};
                    job.message = seed;
                    copy(job);
                    std::vector<unsigned char> wanted(next.data() + offset,
                                                      next.data() + offset + length);
                    std::vector<unsigned char> held(kMax + 128);
                    fill_pattern(held.data(), held.size(), seed);
                    std::copy(wanted.begin(), wanted.end(),
                              held.begin() + static_cast<long>(target));
                    ASSERT_EQ(read(destination, held.size()), held)
                        << length << " from " << offset << " to " << target;
                    seed += 3;
                }
            }
        }
    }
}

/** The source is not read again, if it is of the same message and the same kernel. */
TEST_F(Standby, HoldsWhatItHasReadAheadForThatMessageOnly) {
    constexpr size_t kBytes = 8192;
    Buffer first(MemoryKind::pinned, kBytes);
    Buffer next(MemoryKind::pinned, kBytes);
    Buffer destination(MemoryKind::device, kBytes);
    StandbyJob reads = {destination.data(), first.data(), kBytes};
    reads.next = {10, next.data(), kBytes};
    const StandbyJob other = {destination.data(), first.data(), kBytes};
    const auto copy_of = [&](uint64_t message, size_t offset, size_t length) {
        StandbyJob job = {destination.data(), next.data() + offset, length};
        job.message = message;
        return job;
    };
    first.fill(1);
    std::vector<unsigned char> before(kBytes);
    bool was_held = false;
    // Where nobody tells of calls that wait for the GPU a kernel leaves 2 us after the last beat;
    // not each time.
    for (int attempt = 0; attempt < 100 && !was_held; ++attempt) {
        next.fill(2);
        before.assign(next.data(), next.data() + kBytes);
        copy(reads);
        copy(other);  // all warps do it, so behind it the source has been read
        next.data()[kBytes / 2] ^= 0xff;
        copy(copy_of(10, 0, kBytes));
        was_held = read(destination, kBytes) == before;
    }
    EXPECT_TRUE(was_held);
    next.fill(3);
    copy(copy_of(11, 0, kBytes));
    EXPECT_EQ(destination.check(0, kBytes, 3, 0), "") << "another message at the same place";
    copy(copy_of(0, 0, kBytes));
    EXPECT_EQ(destination.check(0, kBytes, 3, 0), "") << "memory of no message";
    destination.fill(4);
    copy(copy_of(10, 16, 1000));
    Buffer expected(MemoryKind::host, kBytes);
    expected.fill(3);
    EXPECT_EQ(memcmp(read(destination, 1000).data(), expected.data() + 16, 1000), 0)
        << "another part of it";

    ASSERT_TRUE(await_death());
    copy(copy_of(10, 0, kBytes));
    EXPECT_EQ(destination.check(0, kBytes, 3, 0), "") << "another kernel";
}

/** What goes to the host comes in units, where words are whole, and the CPU puts them where they
 * belong, pageable memory too. More of them than there are numbers before the first one comes
 * again. */
TEST_F(Standby, AnswersWithSmallCopiesToTheHost) {
    constexpr size_t kBytes = 2048;
    Buffer original(MemoryKind::host, kBytes);
    Buffer destination(MemoryKind::host, kBytes);
    uint64_t seed = 0;
    for (const MemoryKind from : {MemoryKind::device, MemoryKind::pinned}) {
        Buffer source(from, kBytes);
        for (const size_t length :
             {size_t{4}, size_t{8}, size_t{12}, size_t{16}, size_t{20}, size_t{24}, size_t{128},
              size_t{kStandbyMostAnswer - 4}, size_t{kStandbyMostAnswer}}) {
            for (const size_t offset : {0, 4, 8, 12, 64, 100}) {
                original.fill(++seed);
                ASSERT_EQ(copy_any(source.data() + offset, original.data(), length), Status::ok);
                destination.fill(seed + 1);
                StandbyJob answered = {destination.data() + 100 + offset, source.data() + offset,
                                       length};
                answered.cpu_may_write = true;
                copy(answered);
                EXPECT_EQ(destination.check(100 + offset, length, seed, seed + 1), "")
                    << length << " bytes from " << offset;
                ++seed;
            }
        }
    }
}

/** One that is asked for between others, which are none: longer, of odd words, or behind one under
 * way. */
TEST_F(Standby, AnswersAmongOtherCopies) {
    constexpr size_t kPiece = 4096;
    constexpr size_t kPieces = 16;
    Buffer source(MemoryKind::device, kPieces * kPiece);
    Buffer destination(MemoryKind::pinned, kPieces * kPiece);
    for (uint64_t round = 1; round <= 200; ++round) {
        source.fill(round);
        destination.fill(1000 + round);
        Buffer expected(MemoryKind::host, kPieces * kPiece);
        expected.fill(1000 + round);
        ASSERT_TRUE(await_life());
        std::vector<StandbyTicket> tickets;
        const auto length_of = [&](size_t i) {
            return 1 + (i + round) * 37 % (2 * kStandbyMostAnswer);
        };
        for (size_t i = 0; i < kPieces; ++i) {
            StandbyJob copy = {destination.data() + i * kPiece, source.data() + i * kPiece,
                               length_of(i)};
            copy.cpu_may_write = true;
            StandbyTicket ticket;
            if (!kernel_->give(copy, &ticket)) {
                break;
            }
            tickets.push_back(ticket);
        }
        for (size_t i = 0; i < tickets.size(); ++i) {
            if (wait(tickets[i]) == State::served) {
                ASSERT_EQ(copy_any(expected.data() + i * kPiece, source.data() + i * kPiece,
                                   length_of(i)),
                          Status::ok);
            }
        }
        EXPECT_EQ(memcmp(expected.data(), destination.data(), kPieces * kPiece), 0) << round;
    }
}

/** Each unit is seen whole, and none of another answer: what is behind all of them changes each
 * time. */
TEST_F(Standby, AnswersAreNeverTorn) {
    constexpr size_t kWords = kStandbyMostAnswer / sizeof(uint64_t);
    const int wanted = simulated() ? 3000 : 200'000;
    Buffer source(MemoryKind::pinned, kStandbyMostAnswer);
    uint64_t destination[kWords];
    int answers = 0;
    const Deadline deadline;
    for (int round = 1; answers < wanted && !deadline.passed(); ++round) {
        const size_t words = round % 4 == 0 ? kWords : 1 + static_cast<size_t>(round) % 5;
        auto *numbers = reinterpret_cast<uint64_t *>(source.data());
        for (size_t i = 0; i < words; ++i) {
            numbers[i] = (static_cast<uint64_t>(round) << 32 | i) * 0x9e3779b97f4a7c15u;
        }
        memset(destination, 0xee, sizeof(destination));
        StandbyJob asked = {destination, source.data(), words * sizeof(uint64_t)};
        asked.cpu_may_write = true;
        kernel_->note_copy();
        kernel_->tend(StandbyKernel::Moment::idle, true, monotonic_nanoseconds());
        StandbyTicket ticket;
        if (kernel_->give(asked, &ticket) && wait(ticket) == State::served) {
            ++answers;
            for (size_t i = 0; i < words; ++i) {
                ASSERT_EQ(destination[i],
                          (static_cast<uint64_t>(round) << 32 | i) * 0x9e3779b97f4a7c15u)
                    << "answer " << round << ", word " << i;
            }
        }
    }
    EXPECT_EQ(answers, wanted);
}

/** Many commands at once, of all lengths, more than the ring takes in one round. */
TEST_F(Standby, ServesAWindowInOrderAndRefusesMoreThanFits) {
    constexpr size_t kPiece = 3000;
    constexpr size_t kPieces = 300;
    Buffer source(MemoryKind::device, kPieces * kPiece);
    Buffer destination(MemoryKind::pinned, kPieces * kPiece);
    size_t all_served = 0;
    for (uint64_t round = 1; round < 20; ++round) {
        source.fill(round);
        destination.fill(100 + round);
        size_t served = 0;
        size_t given = 0;
        std::vector<StandbyTicket> tickets;
        ASSERT_TRUE(await_life());
        for (; given < kPieces; ++given) {
            StandbyTicket ticket;
            const size_t length = 1 + given * 37 % kPiece;
            if (!kernel_->give(
                    {destination.data() + given * kPiece, source.data() + given * kPiece, length},
                    &ticket)) {
                break;
            }
            tickets.push_back(ticket);
        }
        for (size_t i = 0; i < tickets.size(); ++i) {
            const bool was_served = wait(tickets[i]) == State::served;
            EXPECT_TRUE(!was_served || served == i) << "a later one without an earlier one";
            served += was_served ? 1 : 0;
        }
        Buffer expected(MemoryKind::host, kPieces * kPiece);
        expected.fill(100 + round);
        for (size_t i = 0; i < served; ++i) {
            ASSERT_EQ(copy_any(expected.data() + i * kPiece, source.data() + i * kPiece,
                               1 + i * 37 % kPiece),
                      Status::ok);
        }
        EXPECT_EQ(memcmp(expected.data(), destination.data(), kPieces * kPiece), 0)
            << "round " << round << ", " << served << " of " << given << " served";
        all_served += served;
    }
    EXPECT_GT(all_served, 0u);
}

TEST_F(Standby, LeavesWhenNobodyWaits) {
    ASSERT_TRUE(await_life());
    EXPECT_TRUE(await_death());
    StandbyTicket ticket;
    Buffer memory(MemoryKind::device, 64);
    EXPECT_FALSE(kernel_->give({memory.data(), memory.data() + 32, 32}, &ticket));
    EXPECT_TRUE(await_life()) << "it does not come again";
}

TEST_F(Standby, LeavesAtTheEndOfItsLifeThoughItIsWaitedFor) {
    make(2'000'000);
    for (int i = 0; i < 5; ++i) {
        ASSERT_TRUE(await_life());
        EXPECT_TRUE(tend_until([this] { return !kernel_->alive(); }));
    }
}

/** Commands that meet the end of a life: each was copied, or was not and is said not to be. */
TEST_F(Standby, SaysOfEachCommandWhetherItServedIt) {
    make(300'000);
    constexpr size_t kBytes = 4096;
    Buffer source(MemoryKind::pinned, kBytes);
    Buffer destination(MemoryKind::pinned, kBytes);
    source.fill(1);
    int served = 0;
    ASSERT_TRUE(await_life());
    const uint64_t deadline = monotonic_nanoseconds() + 20'000'000'000;
    // On a busy machine a life may pass without a command.
    for (int i = 0; i < 3000 || (served == 0 && monotonic_nanoseconds() < deadline); ++i) {
        const size_t offset = 64 * static_cast<size_t>(i % 60);
        kernel_->note_copy();
        kernel_->tend(StandbyKernel::Moment::idle, true, monotonic_nanoseconds());
        StandbyTicket ticket;
        memset(destination.data(), i, kBytes);
        if (kernel_->give({destination.data() + offset, source.data() + offset, 64}, &ticket)) {
            const bool was_served = wait(ticket) == State::served;
            const bool is_there =
                memcmp(destination.data() + offset, source.data() + offset, 64) == 0;
            ASSERT_EQ(was_served, is_there) << i;
            served += was_served ? 1 : 0;
        }
    }
    EXPECT_GT(served, 0);
}

/** A thread gives a command, the kernel leaves before it has all of it, another thread sees that.
 */
TEST_F(Standby, ACommandThatMeetsItsEndIsNotServedByTheNextLaunch) {
    SKIP_UNLESS_SIMULATED();
    Buffer destination(MemoryKind::pinned, 64);
    memset(destination.data(), 0xee, 64);
    HeldPage source;
    std::atomic<bool> stop{false};
    std::thread tender([&] {
        while (!stop) {
            kernel_->note_copy();
            kernel_->tend(StandbyKernel::Moment::idle, true, monotonic_nanoseconds());
        }
    });
    StandbyTicket ticket;
    std::thread giver([&] {
        const Deadline deadline;
        while (!kernel_->give({destination.data(), source.address(), 64, true}, &ticket) &&
               !deadline.passed()) {
        }
    });
    const Deadline deadline;
    while (!source.reached() && !deadline.passed()) {
    }
    kernel_->dismiss();
    std::this_thread::sleep_for(
        std::chrono::milliseconds(50));  // until the tender waits for the giver
    source.let_go();
    giver.join();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop = true;
    tender.join();
    ASSERT_TRUE(source.reached());
    EXPECT_EQ(wait(ticket), State::not_served);
    EXPECT_EQ(destination.data()[0], 0xee);
}

/** A thread that computes has not looked yet at what the kernel did for it. */
TEST_F(Standby, WhatWasServedAndNotLookedAtKeepsNoOtherKernelAway) {
    Buffer source(MemoryKind::pinned, 64);
    Buffer destination(MemoryKind::device, 64);
    StandbyTicket ticket;
    State later_one = State::not_served;  // served: so was the one before
    while (later_one != State::served) {
        ASSERT_TRUE(tend_until([&] {
            return kernel_->give({destination.data(), source.data(), 64}, &ticket);
        }));
        StandbyTicket later;
        later_one = kernel_->give({destination.data(), source.data(), 64}, &later)
                        ? wait(later)
                        : State::not_served;
        if (later_one != State::served) {
            wait(ticket);
        }
    }
    ASSERT_TRUE(await_death());
    ASSERT_TRUE(await_life());
    EXPECT_EQ(kernel_->state(&ticket), State::served);
}

/** It has no part in the parent's, nor in the memory by which that is told what to do. */
TEST_F(Standby, AForkedChildHasNone) {
    make(kLongLife, StandbyConfig::Mode::whenever_possible, kLongLife);
    ASSERT_TRUE(await_life());
    const pid_t child = fork();
    if (child == 0) {
        _exit(kernel_->alive() ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

/** All that it is given takes it 6 ms; a look at the commands finds work for 0.4. */
TEST_F(Standby, LeavesAtTheEndOfItsLifeThoughItHasWork) {
    if (simulated()) {
        GTEST_SKIP() << "the simulated kernel's time has nothing to do with its work";
    }
    constexpr size_t kBytes = 1u << 20;
    constexpr size_t kCopies = 250;
    make(1'000'000);
    Buffer source(MemoryKind::device, kBytes);
    Buffer destination(MemoryKind::pinned, kBytes);
    std::vector<StandbyTicket> tickets;
    StandbyTicket ticket;
    ASSERT_TRUE(await_life());
    while (tickets.size() < kCopies &&
           kernel_->give({destination.data(), source.data(), kBytes}, &ticket)) {
        tickets.push_back(ticket);
    }
    const auto served = std::count_if(tickets.begin(), tickets.end(),
                                      [this](auto &given) { return wait(given) == State::served; });
    EXPECT_EQ(tickets.size(), kCopies);
    EXPECT_GT(served, 0);
    EXPECT_LT(served, static_cast<long>(kCopies / 2));
}

TEST_F(Standby, IsNotLaunchedForNothing) {
    SKIP_UNLESS_SIMULATED();
    make(kLongLife, StandbyConfig::Mode::when_it_pays);
    reset_calls();
    for (int i = 0; i < 3; ++i) {
        kernel_->note_copy();
        kernel_->tend(StandbyKernel::Moment::idle, true, monotonic_nanoseconds());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kernel_->tend(StandbyKernel::Moment::idle, true, monotonic_nanoseconds());
    EXPECT_EQ(calls("cuModuleLoadData") + calls("cuLaunchKernel"), 0u);
}

/** The steps of a program: a wait for the GPU, where it has one, a small copy, and a wait for a
 * message. */
class StandbySteps : public Standby {
protected:
    static constexpr unsigned kSteps = 100;

    void SetUp() override {
        Standby::SetUp();
        waits_were_hooked_ = DriverWatch::instance().waits.exchange(true);
        launches_before_ = DriverWatch::instance().launches;
    }
    void TearDown() override {
        DriverWatch::instance().waits = waits_were_hooked_;
        DriverWatch::instance().launches = launches_before_;
        if (kernel_ != nullptr) {
            kernel_->dismiss();
        }
        Standby::TearDown();
    }

    struct Seen {
        unsigned wanting = 0;  // steps that wanted a kernel
        uint64_t launches = 0;
    };

    /** `launches`: of the program in each step. */
    Seen run(bool waits, bool is_costly = false, unsigned launches = 0) {
        Seen seen;
        const uint64_t before = calls("cuLaunchKernel");
        for (unsigned i = 0; i < kSteps; ++i) {
            if (waits) {
                StandbyDemand::instance().begin_absence();
                StandbyDemand::instance().end_absence();
            }
            DriverWatch::instance().launches += launches;
            kernel_->note_copy(is_costly);
            const bool wanted =
                kernel_->tend(StandbyKernel::Moment::idle, true, monotonic_nanoseconds());
            tend_for(std::chrono::microseconds(5));
            seen.wanting += wanted ? 1 : 0;
        }
        seen.launches = calls("cuLaunchKernel") - before;
        return seen;
    }
    /** A kernel is launched and runs. */
    void await_presence() {
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (!kernel_->is_there()) {
            ASSERT_LT(std::chrono::steady_clock::now(), end) << "has another process the GPU?";
            kernel_->tend(StandbyKernel::Moment::idle, true, monotonic_nanoseconds());
        }
    }
    /** The kernel of an earlier step has left. */
    void await_absence() {
        kernel_->dismiss();
        ASSERT_TRUE(await_death());
        kernel_->tend(StandbyKernel::Moment::idle, true, monotonic_nanoseconds());
    }

private:
    void tend_for(std::chrono::microseconds time) {
        const auto end = std::chrono::steady_clock::now() + time;
        while (std::chrono::steady_clock::now() < end) {
            kernel_->tend(StandbyKernel::Moment::idle, true, monotonic_nanoseconds());
        }
    }

    bool waits_were_hooked_ = false;
    uint64_t launches_before_ = 0;
};

TEST_F(StandbySteps, HaveNoKernelWhereEachWaitsForTheGpu) {
    SKIP_UNLESS_SIMULATED();
    make(kLongLife, StandbyConfig::Mode::when_it_pays, kLongLife);
    run(true);
    await_absence();
    const Seen seen = run(true);
    EXPECT_EQ(seen.wanting, 0u);
    EXPECT_EQ(seen.launches, 0u);
    EXPECT_FALSE(kernel_->is_there());
}

/** Whose kernel leaves in each step because the process does not poll. */
TEST_F(StandbySteps, HaveNoKernelWhereEachIsLong) {
    SKIP_UNLESS_SIMULATED();
    make(kLongLife, StandbyConfig::Mode::when_it_pays);
    unsigned wanting = 0;
    for (unsigned i = 0; i < kSteps; ++i) {
        const uint64_t end = monotonic_nanoseconds() + 2 * kBeat;
        while (monotonic_nanoseconds() < end) {
        }
        kernel_->note_copy();
        wanting +=
            kernel_->tend(StandbyKernel::Moment::busy, false, monotonic_nanoseconds()) ? 1 : 0;
    }
    EXPECT_LE(wanting, 2u);
}

/** The first steps show it. */
TEST_F(StandbySteps, HaveNoKernelWhereTheProgramLaunchesMoreKernelsThanItHasMessages) {
    SKIP_UNLESS_SIMULATED();
    make(kLongLife, StandbyConfig::Mode::when_it_pays, kLongLife);
    run(false, false, 2);
    // The last one may not have started yet.
    const uint64_t end = monotonic_nanoseconds() + 20'000'000'000;
    do {
        ASSERT_LT(monotonic_nanoseconds(), end);
        kernel_->dismiss();
    } while (kernel_->tend(StandbyKernel::Moment::idle, true, monotonic_nanoseconds()));
    const Seen seen = run(false, false, 2);
    EXPECT_EQ(seen.wanting, 0u);
    EXPECT_EQ(seen.launches, 0u);
    EXPECT_FALSE(kernel_->is_there());
    EXPECT_GT(run(false, false, 1).wanting, kSteps - 2 * ProgramKernels::kCopies);
}

TEST_F(StandbySteps, HaveAKernelAgainWhereTheProgramCeasesToWait) {
    SKIP_UNLESS_SIMULATED();
    make(kLongLife, StandbyConfig::Mode::when_it_pays, kLongLife);
    run(true);
    await_absence();
    // The copy of the last step that waits is the first one of the run.
    EXPECT_EQ(run(false).wanting, kSteps + 1 - (CopyRuns::kLong - 1));
    EXPECT_TRUE(tend_until([this] { return kernel_->is_there(); }));
}

TEST_F(StandbySteps, HaveAKernelWhereCopiesAreCostly) {
    SKIP_UNLESS_SIMULATED();
    make(kLongLife, StandbyConfig::Mode::when_it_pays, kLongLife);
    run(true);
    // The first copies say how likely the next one is.
    EXPECT_EQ(run(true, true).wanting, kSteps);
}

/** The program sends right behind its waits, so the kernel is there only when nothing comes. */
TEST_F(StandbySteps, HaveFewKernelsWhereCostlyCopiesComeWithoutThem) {
    SKIP_UNLESS_SIMULATED();
    make(kLongLife, StandbyConfig::Mode::when_it_pays, kLongLife);
    const uint64_t before = calls("cuLaunchKernel");
    for (unsigned i = 0; i < kSteps; ++i) {
        StandbyDemand::instance().begin_absence();
        StandbyDemand::instance().end_absence();
        kernel_->note_copy(true);
        if (kernel_->tend(StandbyKernel::Moment::costly, true, monotonic_nanoseconds())) {
            ASSERT_NO_FATAL_FAILURE(await_presence());
            await_absence();
        }
    }
    EXPECT_GE(calls("cuLaunchKernel") - before, LaunchUse::kUnused);
    EXPECT_LE(calls("cuLaunchKernel") - before, LaunchUse::kUnused + CopyRuns::kLong);
}

TEST_F(StandbySteps, HaveAKernelInAnyCaseWhereItIsForced) {
    SKIP_UNLESS_SIMULATED();
    make(kLongLife, StandbyConfig::Mode::whenever_possible, kLongLife);
    EXPECT_EQ(run(true).wanting, kSteps);
}

/** There the kernel leaves whenever the process does not poll: each of its launches serves one
 * step. */
TEST_F(StandbySteps, HaveFewKernelsWhereWaitsAreNotSeen) {
    SKIP_UNLESS_SIMULATED();
    DriverWatch::instance().waits = false;
    make(kLongLife, StandbyConfig::Mode::when_it_pays, kLongLife);
    unsigned steps_with_kernel = 0;
    for (unsigned i = 0; i < kSteps; ++i) {
        kernel_->note_copy();
        if (kernel_->tend(StandbyKernel::Moment::idle, true, monotonic_nanoseconds())) {
            ++steps_with_kernel;
            ASSERT_NO_FATAL_FAILURE(await_presence());
            await_absence();
        }
    }
    EXPECT_GT(steps_with_kernel, 0u);
    EXPECT_LE(steps_with_kernel, 3 + 2 * kSteps / CopyRuns::kLong);
}

TEST_F(Standby, WithoutAKernelEveryCommandIsRefused) {
    SKIP_UNLESS_SIMULATED();
    for (const char *failing :
         {"cuMemHostRegister:1:2", "cuStreamCreate:1:2", "cuLaunchKernel:1:2,cuLaunchKernel:1:2"}) {
        reset_calls();
        set_simulation("SIMCUDA_FAIL", failing);
        make(kLongLife);
        for (const uint64_t end = monotonic_nanoseconds() + 20'000'000;
             monotonic_nanoseconds() < end;) {
            kernel_->note_copy();
            kernel_->tend(StandbyKernel::Moment::idle, true, monotonic_nanoseconds());
            StandbyTicket ticket;
            ASSERT_FALSE(kernel_->give({this, this, 8}, &ticket)) << failing;
        }
        set_simulation("SIMCUDA_FAIL", "");
    }
}

/** A part of a GPU may be too small for it. */
TEST_F(Standby, WhereNoClusterIsLaunchedABlockServes) {
    SKIP_UNLESS_SIMULATED();
    constexpr size_t kBytes = 100'000;
    Buffer source(MemoryKind::device, kBytes);
    Buffer destination(MemoryKind::pinned, kBytes);
    ASSERT_TRUE(kernel_->is_cluster());
    reset_calls();
    set_simulation("SIMCUDA_FAIL", "cuLaunchKernel:1:912");  // CUDA_ERROR_INVALID_CLUSTER_SIZE
    source.fill(1);
    copy({destination.data(), source.data(), kBytes});
    set_simulation("SIMCUDA_FAIL", "");
    EXPECT_EQ(destination.check(0, kBytes, 1, 0), "");
    EXPECT_FALSE(kernel_->is_cluster());
    EXPECT_GE(calls("cuLaunchKernel"), 2u);
}

/** What the driver fails to answer says nothing of the kernel, which goes on copying. */
TEST_F(Standby, OneFailureOfTheDriverDoesNotMeanThatItIsDead) {
    SKIP_UNLESS_SIMULATED();
    Buffer memory(MemoryKind::pinned, 128);
    memory.fill(1);
    set_simulation("SIMCUDA_DELAY_US", "30000");
    set_simulation("SIMCUDA_SEED", "1");
    reset_calls();
    ASSERT_TRUE(await_life());
    set_simulation("SIMCUDA_FAIL", "cuStreamQuery:1:999");
    State state = State::waiting;
    const Deadline deadline;
    while (calls("cuStreamQuery") == 0 && !deadline.passed()) {
        memset(memory.data(), 0, 64);
        StandbyTicket ticket;
        while (!kernel_->give({memory.data(), memory.data() + 64, 64}, &ticket)) {
            ASSERT_TRUE(await_life());  // that one's life was over
        }
        state = wait(ticket);
    }
    const bool is_there = memcmp(memory.data(), memory.data() + 64, 64) == 0;
    memset(memory.data(), 0xee, 64);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    set_simulation("SIMCUDA_FAIL", "");
    set_simulation("SIMCUDA_SEED", "0");
    set_simulation("SIMCUDA_DELAY_US", "5");
    EXPECT_EQ(memory.data()[0], 0xee) << "it copied after that";
    EXPECT_EQ(state == State::served, is_there) << "it may have left before it saw the command";
    EXPECT_GE(calls("cuStreamQuery"), 1u) << "shows nothing";
}

/** Another thread may launch the next one between the driver's answer and what is made of it. */
class StandbyLaunchedMeanwhile : public Standby {
protected:
    void SetUp() override {
        Standby::SetUp();
        test_ = this;
    }
    /** cuStreamQuery, and the next launch behind it. */
    static CUresult query_and_launch(CUstream stream) {
        CUresult result = CUDA_ERROR_NOT_READY;
        while (result == CUDA_ERROR_NOT_READY) {
            result = query_(stream);
        }
        EXPECT_TRUE(test_->await_life());
        return result;
    }

    static inline StandbyLaunchedMeanwhile *test_;
    static inline decltype(CudaDriver::stream_query) query_;
};

TEST_F(StandbyLaunchedMeanwhile, IsNotTakenForKilled) {
    ASSERT_TRUE(await_life());
    kernel_->dismiss();
    ASSERT_TRUE(await_death());
    auto &driver = const_cast<CudaDriver &>(cuda_);
    query_ = std::exchange(driver.stream_query, query_and_launch);
    EXPECT_FALSE(kernel_->look_whether_killed());
    driver.stream_query = query_;
    EXPECT_TRUE(await_life()) << "it is used no more";
}

/** It is killed with the context in the middle of a window; of the tests here the last one in this
 * process. */
/** A tool's callback runs within a call of the driver, and may call the driver itself. */
FreshProcess launch_with_a_tool("standby-launch-with-a-tool", [] {
    alarm(30);
    const std::shared_ptr<StandbyKernel> kernel = fresh_kernel(200'000, 1'000'000);
    if (!kernel) {
        return 1;
    }
    const CudaDriver &cuda = *CudaDriver::get();
    static decltype(cuda.launch_kernel) launch;
    static bool called;
    launch = cuda.launch_kernel;
    const_cast<CudaDriver &>(cuda).launch_kernel = [](auto... arguments) {
        called = true;
        const CUresult result = launch(arguments...);
        const StandbyKernels::Absence no_kernel;  // as cuCtxSynchronize
        return result;
    };
    while (!called) {  // NOLINT(bugprone-infinite-loop): launch_kernel() sets it
        kernel->note_copy();
        StandbyKernels::instance().tend(StandbyKernel::Moment::idle);
    }
    return 0;
});

TEST_F(Standby, ALaunchMayBeWatchedByATool) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(launch_with_a_tool.run(), 0);
}

/** To a kernel of StandbyKernels, which may leave at any time; false when it takes too long. */
bool give_awake(StandbyKernel &kernel, const StandbyJob &copy, StandbyTicket *ticket) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!kernel.give(copy, ticket)) {
        kernel.note_copy();
        StandbyKernels::instance().tend(StandbyKernel::Moment::idle);
        if (std::chrono::steady_clock::now() > end) {
            return false;
        }
    }
    return true;
}

/** Whether an Absence says how it is while a kernel that takes its time serves a command, if that
 * is not too quick. */
int tell_absence(bool is_retired) {
    setenv("SIMCUDA_SEED", std::to_string(getpid()).c_str(), 1);  // other delays with each attempt
    setenv("SIMCUDA_DELAY_US", "3000", 1);  // up to three times as long, before and behind the copy
    constexpr uint32_t kLong = 1'000'000'000;
    const std::shared_ptr<StandbyKernel> kernel = fresh_kernel(kLong, kLong);
    CUcontext context = nullptr;
    CudaDriver::get()->ctx_get_current(&context);
    Buffer source(MemoryKind::pinned, 64);
    Buffer destination(MemoryKind::device, 64);
    StandbyKernels &kernels = StandbyKernels::instance();
    StandbyTicket ticket;
    if (!kernel || !give_awake(*kernel, {destination.data(), source.data(), 64}, &ticket)) {
        return 1;
    }
    // A kernel that is told to leave before it has looked serves nothing: so at another moment with
    // each attempt.
    std::this_thread::sleep_for(std::chrono::microseconds(getpid() % 7 * 300));
    if (is_retired) {
        kernels.leave_to_peer(context, 0);
        kernels.tend(StandbyKernel::Moment::idle);
    }
    bool was_incomplete = false;
    State state = State::waiting;
    while (state == State::waiting) {
        const bool complete = StandbyKernels::Absence().complete();
        state = kernel->state(&ticket);
        was_incomplete |= !complete;
        if (complete && state == State::waiting) {
            return 2;
        }
    }
    return !StandbyKernels::Absence(20'000'000'000).complete() ? 3 : was_incomplete ? 0 : kTryAgain;
}

FreshProcess absence_is_told("standby-absence-is-told", [] { return tell_absence(false); });
FreshProcess absence_of_retired("standby-absence-of-retired", [] { return tell_absence(true); });

/** A kernel that the GPU keeps from leaving may still read, also when it is not used any more. */
TEST_F(Standby, AbsenceTellsWhetherAllHaveLeft) {
    SKIP_UNLESS_SIMULATED();
    for (FreshProcess *process : {&absence_is_told, &absence_of_retired}) {
        EXPECT_EQ(run_until_it_counts(*process), 0);
    }
}

/** Of a process that closes a segment while a kernel that takes its time may read it. */
FreshProcess closes_segment("standby-closes-segment", [] {
    setenv("SIMCUDA_SEED", std::to_string(getpid()).c_str(), 1);  // other delays with each attempt
    setenv("SIMCUDA_DELAY_US", "100000",
           1);  // up to three times as long, before and behind the copy
    constexpr uint32_t kLong = 1'000'000'000;
    const std::shared_ptr<StandbyKernel> kernel = fresh_kernel(kLong, kLong);
    const LogCapture log;
    auto segment = Segment::create("gpushm-test", 65536);
    Buffer source(MemoryKind::pinned, 64);
    Buffer destination(MemoryKind::device, 64);
    CHECK(copy_any(segment->data(), destination.data(), 64) == Status::ok);
    CHECK(query_memory(segment->data()).kind == MemoryKind::pinned);
    StandbyTicket ticket;
    CHECK(kernel && give_awake(*kernel, {destination.data(), source.data(), 64}, &ticket));
    std::this_thread::sleep_for(std::chrono::milliseconds(getpid() % 7 * 30));
    reset_calls();
    segment.reset();
    CHECK(await_background_calls("cuMemHostUnregister", 1));
    CHECK(mappings_named("gpushm-test") == 0);
    await_end(*kernel, ticket);
    return log.count("stay page-locked for now") != 0 ? 0 : kTryAgain;
});

TEST_F(Standby, ASegmentIsUnlockedWhenTheKernelHasLeft) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(run_until_it_counts(closes_segment), 0);
}

/** Two copies within the GPU of which a kernel that takes its time serves the first one only; then
 * what they are of is copied by other kernels, if it is there. */
class HalfServed {
public:
    HalfServed() {
        setenv("SIMCUDA_SEED", "1", 1);
        setenv("SIMCUDA_DELAY_US", "3000",
               1);  // up to three times as long, before and behind the copy
        kernel = lasting_kernel();
        for (size_t i = 0; i < 2; ++i) {
            source[i] = std::make_unique<Buffer>(MemoryKind::device, 4096);
            destination[i] = std::make_unique<Buffer>(MemoryKind::device, 4096);
        }
        StandbyTicket awake;
        was_awake =
            kernel && give_awake(*kernel, {destination[0]->data(), source[0]->data(), 64}, &awake);
        if (was_awake) {
            await_end(*kernel, awake);
        }
    }
    /** 0, or what the process is to end with. */
    int start(CopyEngine &engine) {
        if (!was_awake) {
            return 1;
        }
        bool was_given = true;
        for (size_t i = 0; i < 2; ++i) {
            const MemoryInfo info = query_memory(source[i]->data());
            CopyJob job = {
                destination[i]->data(), source[i]->data(), 4096, info, CopyDirection::to_gpu, true};
            job.other_side = OtherSide::same_gpu;
            was_given &= engine.start(job, &ticket[i]) == Status::in_progress &&
                         ticket[i].batch->standby.end != 0;
            const uint64_t seen =
                monotonic_nanoseconds() + 1'000'000;  // the kernel looks every few microseconds
            while (i == 0 && monotonic_nanoseconds() < seen) {
                engine.progress();  // which keeps it alive
            }
        }
        const StandbyKernels::Absence no_kernel(20'000'000'000);
        return was_given ? 0 : kTryAgain;
    }

    std::shared_ptr<StandbyKernel> kernel;
    bool was_awake;
    std::unique_ptr<Buffer> source[2];
    std::unique_ptr<Buffer> destination[2];
    CopyTicket ticket[2];
};

/** An engine that ends takes its copies with it: nobody will ask how they ended. */
FreshProcess engine_has_ended("standby-engine-has-ended", [] {
    HalfServed copies;
    auto engine = std::make_unique<CopyEngine>();
    if (const int failed = copies.start(*engine)) {
        return failed;
    }
    engine.reset();
    StandbyTicket ticket;
    return give_awake(*copies.kernel, {copies.destination[0]->data(), copies.source[0]->data(), 64},
                      &ticket)
               ? 0
               : 2;
});

TEST_F(Standby, CopiesOfAnEngineThatEndsKeepNoOtherKernelAway) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(run_until_it_counts(engine_has_ended), 0);
}

/** As by a cudaFree after a forced close, which sends the kernel away. */
FreshProcess freed_meanwhile("standby-freed-meanwhile", [] {
    HalfServed copies;
    CopyEngine engine;
    if (const int failed = copies.start(engine)) {
        return failed;
    }
    copies.source[1].reset();
    const Status first = engine.wait(&copies.ticket[0]);
    const Status second = engine.wait(&copies.ticket[1]);
    if (first != Status::ok || second != Status::gpu_error) {
        return 2;
    }
    return copy_any(copies.destination[0]->data(), copies.source[0]->data(), 64) == Status::ok ? 0
                                                                                               : 3;
});

TEST_F(Standby, WhatIsFreedBeforeAKernelCopiesItNoOtherKernelTouches) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(run_until_it_counts(freed_meanwhile), 0);
}

/** A child that lives on, such as one that loads data, would keep all processes of the node from
 * the GPU. */
FreshProcess claim_and_child("standby-claim-and-child", [] {
    const std::shared_ptr<StandbyKernel> kernel = fresh_kernel(200'000, 1'000'000);
    CUcontext context = nullptr;
    CudaDriver::get()->ctx_get_current(&context);
    Buffer source(MemoryKind::pinned, 64);
    Buffer destination(MemoryKind::device, 64);
    StandbyTicket ticket;
    if (!kernel || !give_awake(*kernel, {destination.data(), source.data(), 64}, &ticket)) {
        return 1;
    }
    const Child child([](const Channel &channel) {
        int word = 0;
        channel.send(word);
        return channel.receive(&word) ? 0 : 1;  // until it is killed
    });
    int lives = 0;
    if (!child.channel().receive(&lives)) {
        return 3;
    }
    StandbyKernels::instance().leave_to_peer(context, 0);
    return GpuClaims::instance().has(0) || GpuClaims::instance().is_taken(0) ? 2 : 0;
});

TEST_F(Standby, AChildDoesNotKeepTheGpu) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(claim_and_child.run(), 0);
}

/** It serves two commands, and dies, and its context with it. */
FreshProcess dying("standby-dies", [] {
    setenv("SIMCUDA_KERNEL_DIES", "2", 1);
    constexpr uint32_t kLong = 1'000'000'000;
    const std::shared_ptr<StandbyKernel> kernel = fresh_kernel(kLong, kLong);
    Buffer memory(MemoryKind::pinned, 4096);
    StandbyTicket first;
    if (!kernel || !give_awake(*kernel, {memory.data() + 2048, memory.data(), 64}, &first)) {
        return 1;
    }
    std::vector<StandbyTicket> tickets = {first};
    for (size_t i = 1; i < 6; ++i) {
        StandbyTicket ticket;
        if (kernel->give({memory.data() + 2048 + 64 * i, memory.data() + 64 * i, 64}, &ticket)) {
            tickets.push_back(ticket);
        }
    }
    const auto is_served = [&](StandbyTicket &ticket) {
        return await_end(*kernel, ticket) == State::served;
    };
    const auto served = std::count_if(tickets.begin(), tickets.end(), is_served);
    memory.forget();
    return served > 2 ? 2 : kernel->alive() ? 3 : 0;
});

TEST_F(Standby, ThatDiesServesNothingMore) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(dying.run(), 0);
}

/** One that was killed does not leave, but is not there any more: nobody waits for it. */
FreshProcess killed_is_gone("standby-killed-is-gone", [] {
    setenv("SIMCUDA_KERNEL_DIES", "1", 1);
    constexpr uint32_t kLong = 1'000'000'000;
    const std::shared_ptr<StandbyKernel> kernel = fresh_kernel(kLong, kLong);
    Buffer source(MemoryKind::pinned, 64);
    Buffer destination(MemoryKind::device, 64);
    StandbyTicket ticket;
    if (!kernel || !give_awake(*kernel, {destination.data(), source.data(), 64}, &ticket)) {
        return 1;
    }
    // It serves this one, and dies; nobody waits for another.
    await_end(*kernel, ticket);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!StandbyKernels::Absence().complete()) {
        if (std::chrono::steady_clock::now() > end) {
            return 2;
        }
    }
    source.forget();
    destination.forget();
    return kernel->alive() ? 3 : 0;
});

TEST_F(Standby, OneThatWasKilledIsNotWaitedFor) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(killed_is_gone.run(), 0);
}

/** The point of it all: a copy engine that has a standby kernel calls no driver. In a process of
 * its own, for the setting is the process's. */
FreshProcess copies_without_the_driver("standby-copies-call-no-driver", [] {
    constexpr uint32_t kLong = 1'000'000'000;
    const std::shared_ptr<StandbyKernel> kernel = fresh_kernel(kLong, kLong);
    if (!kernel) {
        return 1;
    }
    CopyEngine engine;
    constexpr size_t kRoom = 64 << 10;
    constexpr size_t kLongOne = 512 << 10;
    Buffer source(MemoryKind::device, kLongOne);
    Buffer locked(MemoryKind::pinned, kLongOne);
    Buffer destination(MemoryKind::device, kLongOne);
    const MemoryInfo info = query_memory(destination.data());
    Buffer managed(MemoryKind::managed, kRoom);
    const auto job = [&](const Buffer &from, size_t offset, size_t length) {
        const bool in_reach = &from != &managed;  // then nobody has looked
        return CopyJob{destination.data() + offset, from.data(), length, info,
                       CopyDirection::to_gpu,       in_reach,    {},     &from == &locked};
    };
    const auto copy = [&](const Buffer &from, size_t offset, size_t length) {
        reset_calls();
        return engine.copy(job(from, offset, length)) == Status::ok;
    };
    source.fill(1);
    locked.fill(3);
    managed.fill(4);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    const auto in_time = [&] { return std::chrono::steady_clock::now() < end; };
    const auto await_kernel = [&] {
        destination.fill(2);
        while (!kernel->alive() && in_time()) {
            kernel->note_copy();
            StandbyKernels::instance().tend(StandbyKernel::Moment::idle);
        }
    };
    // It may leave at any time; then the copy engine copies.
    const auto copied_by_kernel = [&](const Buffer &from, size_t offset, size_t length,
                                      uint64_t seed, const std::function<bool()> &without_driver) {
        while (in_time()) {
            await_kernel();
            if (copy(from, offset, length) && without_driver()) {
                return destination.check(offset, length, seed, 2) == "";
            }
        }
        return false;
    };
    const auto no_copy = [] { return calls("cuMemcpyAsync") == 0; };
    // Without the driver's hooks it is asked whether the context is still the same.
    const auto no_call = [] { return calls_of_all() == calls("cuCtxGetId"); };
    if (!copied_by_kernel(source, 64, 64, 1, no_call)) {
        return 2;
    }
    // Also from and to memory that it does not reach, where the caller waits.
    const auto only_asks = [] {
        return calls_of_all() == calls("cuCtxGetId") + calls("cuPointerGetAttributes");
    };
    std::vector<unsigned char> pageable(PinnedBufferPool::kSmallBlockBytes);
    for (const size_t length : {size_t{8}, pageable.size()}) {
        bool by_kernel[2] = {};  // to the host, to the GPU
        while ((!by_kernel[0] || !by_kernel[1]) && in_time()) {
            await_kernel();
            reset_calls();
            by_kernel[0] |=
                copy_any(pageable.data(), source.data(), length) == Status::ok && only_asks();
            await_kernel();
            reset_calls();
            by_kernel[1] |=
                copy_any(destination.data() + 64, pageable.data(), length) == Status::ok &&
                only_asks();
            if (destination.check(64, length, 1, 2) != "") {
                return 9;
            }
        }
        if (!by_kernel[0] || !by_kernel[1]) {
            return 10;
        }
    }
    if (!copied_by_kernel(source, 0, kRoom, 1, no_copy) ||
        (kernel->is_cluster() && (!copied_by_kernel(source, 0, kLongOne, 1, no_copy) ||
                                  !copied_by_kernel(locked, 0, kLongOne, 3, no_copy)))) {
        return 3;
    }
    if (!copied_by_kernel(managed, 0, kRoom, 4, no_copy)) {
        return 4;
    }
    if (!copied_by_kernel(locked, 0, kRoom, 3, no_copy)) {
        return 5;
    }
    // From the host it reads more slowly than the copy engine, which only counts where nobody
    // waits.
    await_kernel();
    reset_calls();
    CopyTicket ticket;
    const bool by_engine = engine.start(job(locked, 0, kRoom), &ticket) == Status::in_progress &&
                           engine.wait(&ticket) == Status::ok && calls("cuMemcpyAsync") == 1;
    if (!by_engine || destination.check(0, kRoom, 3, 2) != "") {
        return 6;
    }
    // As it writes there, of which those know that are alone.
    await_kernel();
    reset_calls();
    CopyTicket short_one;
    constexpr size_t kTwo = 2 * kRoom;  // between GPUs the kernel is quicker still
    const CopyJob to_host = {
        locked.data(),           source.data(), kTwo, query_memory(source.data()),
        CopyDirection::from_gpu, true};
    const bool both = engine.start(job(source, 0, 64), &short_one) == Status::in_progress &&
                      engine.start(to_host, &ticket) == Status::in_progress &&
                      engine.wait(&short_one) == Status::ok && engine.wait(&ticket) == Status::ok;
    if (!both || calls("cuMemcpyAsync") == 0 || locked.check(0, kTwo, 1, 3) != "") {
        return 8;
    }
    // What is long as a whole is the driver's, in whatever pieces.
    CopyJob piece = job(source, 0, kRoom);
    piece.transfer_bytes = 4 << 20;
    bool by_driver = false;
    while (!by_driver && in_time()) {  // a kernel that leaves meanwhile is launched anew
        await_kernel();
        reset_calls();
        by_driver = engine.start(piece, &ticket) == Status::in_progress &&
                    engine.wait(&ticket) == Status::ok &&
                    calls("cuMemcpyAsync") + calls("cuLaunchKernel") == 1;
    }
    return by_driver && destination.check(0, kRoom, 1, 2) == "" ? 0 : 7;
});

TEST_F(Standby, CopiesCallNoDriver) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(copies_without_the_driver.run(), 0);
}

/** To give the driver a copy of managed memory takes longer than a launch, so of several even the
 * first ones bring the kernel, though nobody waits yet, and though the last one has only just left.
 */
FreshProcess managed_copies_bring_it("standby-managed-copies-bring-it", [] {
    setenv("SIMCUDA_DELAY_US", "20000", 1);  // what was started is under way
    constexpr uint32_t kLong = 1'000'000'000;
    const std::shared_ptr<StandbyKernel> kernel = fresh_kernel(kLong, kLong);
    if (!kernel) {
        return 1;
    }
    constexpr unsigned kCopies =
        3;  // one that is alone, one that finds that the kernel has left, one that brings it
    constexpr size_t kBytes = 512;
    Buffer host(MemoryKind::pinned, kCopies * kBytes);
    Buffer device(MemoryKind::device, kCopies * kBytes);
    Buffer managed(MemoryKind::managed, kCopies * kBytes);
    CopyEngine engine;
    const auto launches_for = [&](Buffer &source) {
        source.fill(3);
        const MemoryInfo info = query_memory(source.data());
        std::vector<CopyTicket> tickets(kCopies);
        reset_calls();
        for (unsigned i = 0; i < kCopies; ++i) {
            const size_t offset = i * kBytes;
            engine.start({host.data() + offset, source.data() + offset, kBytes, info,
                          CopyDirection::from_gpu},
                         &tickets[i]);
        }
        const uint64_t launches = calls("cuLaunchKernel");
        for (CopyTicket &ticket : tickets) {
            engine.wait(&ticket);
        }
        return host.check(0, kCopies * kBytes, 3, 0) == "" ? launches : ~uint64_t{0};
    };
    if (launches_for(device) != 0) {
        return 2;
    }
    if (launches_for(managed) != 1) {
        return 3;
    }
    kernel->dismiss();
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (kernel->alive() && std::chrono::steady_clock::now() < end) {
    }
    // One that had not begun when it was dismissed is not seen to leave before these are started.
    return launches_for(managed) == 1 ? 0 : kTryAgain;
});

TEST_F(Standby, IsBroughtByCopiesOfManagedMemory) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(run_until_it_counts(managed_copies_bring_it), 0);
}

}  // namespace
}  // namespace gpushm
