// SPDX-License-Identifier: BSD-3-Clause
// Mailbox under traffic: many senders in threads and in processes, and sleeping owners.
#include "test/gtest/core/shm/mailbox_support.hpp"

#include "test/gtest/core/wrapped_calls.hpp"

#include <gtest/gtest.h>

#include <sched.h>

#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr uint64_t kSlotBytes = 512;

/** Short ones mostly, as in real traffic; every length up to a full slot. */
uint32_t length_of(uint64_t seed) {
    const uint64_t mixed = seed * 0x9e3779b97f4a7c15ull >> 40;
    return static_cast<uint32_t>(mixed % (mixed % 4 == 0 ? kSlotBytes + 1 : 113));
}

uint64_t seed_of(int32_t mark, uint64_t sequence) {
    return static_cast<uint64_t>(mark) << 32 | sequence;
}

void send_all(MailboxSender &sender, int32_t mark, uint64_t count) {
    for (uint64_t sequence = 0; sequence < count; ++sequence) {
        const uint64_t seed = seed_of(mark, sequence);
        while (!send_pattern(sender, seed, length_of(seed))) {
            sched_yield();
        }
    }
}

/** Receives `count` messages of each of `senders` senders; each must come in its order. */
void receive_all(MailboxReceiver &mailbox, int32_t senders, uint64_t count) {
    std::map<int32_t, uint64_t> next;
    const Deadline deadline;
    for (uint64_t left = static_cast<uint64_t>(senders) * count; left != 0;) {
        ReceivedCell message;
        if (!mailbox.receive(&message)) {
            ASSERT_FALSE(deadline.passed()) << left << " messages are missing";
            sched_yield();
            continue;
        }
        const auto address = mailbox.sender_address(message.sender);
        ASSERT_TRUE(address);
        const uint64_t seed = seed_of(address->segment_fd, next[address->segment_fd]++);
        ASSERT_EQ(check_pattern(message, seed, length_of(seed)), "");
        mailbox.release();
        --left;
    }
    EXPECT_TRUE(mailbox.empty());
    EXPECT_EQ(next.size(), static_cast<size_t>(senders));
}

TEST(MailboxTraffic, ManyThreadsKeepTheirOrder) {
    constexpr int32_t kThreads = 8;
    constexpr uint64_t kMessages = 10000;
    auto mailbox = MailboxReceiver::create(16, kSlotBytes);
    ASSERT_TRUE(mailbox);
    std::vector<std::thread> threads;
    for (int32_t mark = 0; mark < kThreads; ++mark) {
        threads.emplace_back([&mailbox, mark] {
            MailboxSender sender = attach_sender(mailbox->address(), mark);
            send_all(sender, mark, kMessages);
        });
    }
    receive_all(*mailbox, kThreads, kMessages);
    for (std::thread &thread : threads) {
        thread.join();
    }
}

/** Processes that send, each with a mark of its own. */
std::vector<std::unique_ptr<Child>> start_senders(const MailboxAddress &address, int32_t count,
                                                  uint64_t messages) {
    std::vector<std::unique_ptr<Child>> children;
    for (int32_t mark = 0; mark < count; ++mark) {
        children.push_back(std::make_unique<Child>([address, mark, messages](const Channel &) {
            MailboxSender sender = attach_sender(address, mark);
            send_all(sender, mark, messages);
            return 0;
        }));
    }
    return children;
}

TEST(MailboxTraffic, ManyProcessesKeepTheirOrder) {
    constexpr int32_t kProcesses = 6;
    constexpr uint64_t kMessages = 10000;
    auto mailbox = MailboxReceiver::create(8, kSlotBytes);
    ASSERT_TRUE(mailbox);
    const auto children = start_senders(mailbox->address(), kProcesses, kMessages);
    receive_all(*mailbox, kProcesses, kMessages);
    for (const auto &child : children) {
        EXPECT_EQ(child->reap(), 0);
    }
}

// The threads use one mapping, so that ThreadSanitizer can judge the memory orders of mailboxes.
TEST(MailboxTraffic, EveryAccessIsOrderedByTheSharedWords) {
    constexpr int32_t kThreads = 3;
    constexpr uint64_t kMessages = 4000;
    const OneMappingPerFile one_mapping;
    auto mailbox = MailboxReceiver::create(4, kSlotBytes);
    ASSERT_TRUE(mailbox);
    std::vector<std::thread> threads;
    for (int32_t mark = 0; mark < kThreads; ++mark) {
        threads.emplace_back([&mailbox, mark] {
            MailboxSender sender = attach_sender(mailbox->address(), mark);
            send_all(sender, mark, kMessages);
        });
    }
    receive_all(*mailbox, kThreads, kMessages);
    for (std::thread &thread : threads) {
        thread.join();
    }
    mailbox.reset();
}

/** Sends until it is killed, often while it holds a cell. */
[[noreturn]] void send_forever(MailboxSender &sender, int32_t mark) {
    for (uint64_t sequence = 0;; ++sequence) {
        ReservedCell cell;
        while (!sender.reserve(&cell)) {
            sched_yield();
        }
        const uint64_t seed = seed_of(mark, sequence);
        fill_pattern(sender.slot(cell), kSlotBytes, seed);
        sched_yield();
        sender.publish(cell, CellKind::am_slot, static_cast<uint8_t>(seed % 32), kSlotBytes);
    }
}

TEST(MailboxTraffic, KillsAtAnyMomentCostTheOthersNothing) {
    constexpr int32_t kHealthy = 1000000;
    constexpr uint64_t kMessages = 20000;
    auto mailbox = MailboxReceiver::create(4, kSlotBytes);
    ASSERT_TRUE(mailbox);
    const MailboxAddress address = mailbox->address();
    Child healthy([&](const Channel &) {
        MailboxSender sender = attach_sender(address, kHealthy);
        send_all(sender, kHealthy, kMessages);
        return 0;
    });
    std::unique_ptr<Child> victim;
    int32_t victims = 0;
    uint64_t skipped = 0;
    std::map<int32_t, uint64_t> next;
    const Deadline deadline;
    // Until somebody was killed with a cell in his hands, which is a matter of chance.
    for (uint64_t stalls = 0; next[kHealthy] < kMessages || skipped == 0;) {
        ReceivedCell message;
        if (mailbox->receive(&message)) {
            const int32_t mark = mailbox->sender_address(message.sender)->segment_fd;
            const uint64_t seed = seed_of(mark, next[mark]++);
            const uint32_t length = mark == kHealthy ? length_of(seed) : kSlotBytes;
            ASSERT_EQ(check_pattern(message, seed, length), "");
            mailbox->release();
            continue;
        }
        skipped += mailbox->skip_dead_sender();
        ASSERT_FALSE(deadline.passed()) << next[kHealthy] << " messages of the healthy sender, "
                                        << skipped << " cells of killed ones";
        if (stalls++ % 64 == 0 &&
            (victims < 200 || skipped == 0)) {  // somebody probably holds the oldest cell
            if (victim) {
                victim->kill_hard();
            }
            victim = std::make_unique<Child>([&](const Channel &) -> int {
                MailboxSender sender = attach_sender(address, victims);
                send_forever(sender, victims);
            });
            ++victims;
        }
        sched_yield();
    }
    EXPECT_EQ(healthy.reap(), 0);
}

TEST(MailboxTraffic, RoomAndReserveAgreeWhenNobodyElseMoves) {
    auto mailbox = MailboxReceiver::create(8, 128);
    ASSERT_TRUE(mailbox);
    std::vector<MailboxSender> senders;
    for (int32_t mark = 0; mark < 4; ++mark) {
        senders.push_back(attach_sender(mailbox->address(), mark));
    }
    Random random(1);
    uint64_t sent = 0;
    uint64_t received = 0;
    for (int step = 0; step < 20000; ++step) {
        if (random.below(2) == 0) {
            MailboxSender &sender = senders[random.below(4)];
            ASSERT_EQ(sender.has_room(), sent - received < 8);
            ASSERT_EQ(send_pattern(sender, sent, 8), sent - received < 8);
            sent += sent - received < 8;
        } else if (received < sent) {
            expect_next(*mailbox, received++, 8);
        }
    }
}

/** Sleeps until the next message; false after 10 s, when the wake-up was lost. */
bool sleep_until_message(MailboxReceiver &mailbox, uint64_t *sleeps) {
    const Deadline deadline;
    while (mailbox.empty()) {
        if (!mailbox.arm()) {
            if (deadline.passed()) {
                return false;
            }
            sched_yield();
            continue;
        }
        ++*sleeps;
        pollfd event = {mailbox.event_fd(), POLLIN, 0};
        if (poll(&event, 1, 10000) != 1) {
            return false;
        }
    }
    return true;
}

void sleep_and_receive(MailboxReceiver &mailbox, std::atomic<uint64_t> &received, uint64_t rounds) {
    uint64_t sleeps = 0;
    for (uint64_t round = 0; round < rounds; ++round) {
        ASSERT_TRUE(sleep_until_message(mailbox, &sleeps)) << "lost wake-up in round " << round;
        ReceivedCell message;
        ASSERT_TRUE(mailbox.receive(&message));
        ASSERT_EQ(check_pattern(message, round, 8), "");
        mailbox.release();
        received.store(round + 1, std::memory_order_release);
    }
    EXPECT_GT(sleeps, rounds / 100) << "the owner must sleep in many rounds";
}

/** Sends the next one as soon as the last one is received, after waits of different lengths: some
 * come before the owner is armed, some while it arms itself, some when it sleeps. */
void send_one_by_one(MailboxSender &sender, const std::atomic<uint64_t> &received,
                     const std::atomic<bool> &stop, uint64_t rounds) {
    for (uint64_t round = 0; round < rounds && !stop; ++round) {
        while (received.load(std::memory_order_acquire) != round && !stop) {
        }
        for (volatile uint64_t spin = round * 7 % 2000; spin != 0; spin = spin - 1) {
        }
        send_pattern(sender, round, 8);
    }
}

TEST(MailboxWake, NoWakeUpIsLostInManyRounds) {
    constexpr uint64_t kRounds = 100000;
    auto mailbox = MailboxReceiver::create(4, 128);
    ASSERT_TRUE(mailbox);
    std::atomic<uint64_t> received{0};
    std::atomic<bool> stop{false};
    MailboxSender sender = attach_sender(mailbox->address());
    std::thread thread([&] { send_one_by_one(sender, received, stop, kRounds); });
    sleep_and_receive(*mailbox, received, kRounds);
    stop = true;
    thread.join();
}

TEST(MailboxWake, ProcessesWakeTheOwner) {
    constexpr int32_t kProcesses = 3;
    constexpr uint64_t kMessages = 5000;
    auto mailbox = MailboxReceiver::create(4, kSlotBytes);
    ASSERT_TRUE(mailbox);
    const auto children = start_senders(mailbox->address(), kProcesses, kMessages);
    std::map<int32_t, uint64_t> next;
    uint64_t sleeps = 0;
    for (uint64_t left = kProcesses * kMessages; left != 0; --left) {
        ASSERT_TRUE(sleep_until_message(*mailbox, &sleeps)) << left << " messages are missing";
        ReceivedCell message;
        ASSERT_TRUE(mailbox->receive(&message));
        const int32_t mark = mailbox->sender_address(message.sender)->segment_fd;
        const uint64_t seed = seed_of(mark, next[mark]++);
        ASSERT_EQ(check_pattern(message, seed, length_of(seed)), "");
        mailbox->release();
    }
    EXPECT_GT(sleeps, 0u);
    for (const auto &child : children) {
        EXPECT_EQ(child->reap(), 0);
    }
}

}  // namespace
}  // namespace gpushm
