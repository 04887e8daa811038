// SPDX-License-Identifier: BSD-3-Clause
// Memory is deregistered while a peer writes it by itself, as the words say that both share.
#include "test/gtest/core/transport/port_support.hpp"

#include "core/shm/direct_writes.hpp"
#include "core/shm/mailbox_sender.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr unsigned kRegistrations = 2;

/** A word of this process and its children. */
class SharedWord {
public:
    SharedWord()
        : word_(
              static_cast<std::atomic<int> *>(mmap(nullptr, sizeof(*word_), PROT_READ | PROT_WRITE,
                                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
    ~SharedWord() { munmap(word_, sizeof(*word_)); }
    SharedWord(const SharedWord &) = delete;
    SharedWord &operator=(const SharedWord &) = delete;
    std::atomic<int> &operator*() const { return *word_; }

private:
    std::atomic<int> *word_;
};

/** A sender to a mailbox of the test, which has begun to write registrations of the test. */
int write_until_told(const Channel &channel, const SharedWord &ended) {
    MailboxAddress mailbox;
    std::array<uint64_t, kRegistrations> registrations;
    if (!channel.receive(&mailbox) || !channel.receive(&registrations)) {
        return 1;
    }
    MailboxAddress self;
    self.cookie = Cookie::random();
    self.pid = getpid();
    const char *why = "";
    std::optional<MailboxSender> sender = MailboxSender::attach(mailbox, self, &why);
    if (!sender) {
        return 2;
    }
    DirectWriter writer(sender->direct_writes(), sender->registrations());
    std::vector<DirectWriter::Hold> holds;
    for (const uint64_t registration : registrations) {
        holds.push_back(writer.begin(registration));
        if (holds.back() == nullptr) {
            return 3;
        }
    }
    channel.send(0);
    int delay_us = 0;
    if (!channel.receive(&delay_us)) {
        return 4;
    }
    usleep(static_cast<useconds_t>(delay_us));  // a copy that takes its time
    *ended = 1;
    holds.clear();
    channel.receive(&delay_us);
    return 0;
}

class PortDeregistration : public testing::Test {
protected:
    /** The child writes both registrations now. */
    void begin() {
        child_.channel().send(port_->address());
        child_.channel().send(std::array<uint64_t, kRegistrations>{first_.at().registration,
                                                                   second_.at().registration});
        int began = -1;
        ASSERT_TRUE(child_.channel().receive(&began));
    }

    SharedWord ended_;
    Child child_{[this](const Channel &channel) { return write_until_told(channel, ended_); }};
    LogCapture log_;
    TestPort port_;
    std::array<unsigned char, 64> memory_ = {};
    Registration first_{memory_.data(), 32};
    Registration second_{memory_.data() + 32, 32};
};

TEST_F(PortDeregistration, WaitsForAWriterThatLives) {
    begin();
    child_.channel().send(100'000);
    first_.end();
    EXPECT_EQ(*ended_, 1);
    second_.end();
    EXPECT_EQ(log_.count("does not end a copy"), 0u);
}

TEST_F(PortDeregistration, OfMemoryThatNobodyWritesDoesNotWait) {
    begin();
    std::array<unsigned char, 8> other = {};
    Registration unwritten(other.data(), other.size());
    unwritten.end();
    EXPECT_EQ(*ended_, 0);
    child_.channel().send(0);
    first_.end();
    second_.end();
}

/** Its copies ended with it. */
TEST_F(PortDeregistration, DoesNotWaitForTheDead) {
    begin();
    child_.kill_hard();
    first_.end();
    second_.end();
    EXPECT_EQ(log_.count("does not end a copy"), 0u);
}

TEST_F(PortDeregistration, DoesNotWaitForEverForWhoIsStopped) {
    begin();
    kill(child_.pid(), SIGSTOP);
    first_.end();
    EXPECT_EQ(
        log_.count("process " + std::to_string(child_.pid()) + " does not end a copy into memory"),
        1u);
    second_.end();  // it has not moved since
    EXPECT_EQ(log_.count("does not end a copy"), 1u);
    kill(child_.pid(), SIGCONT);
}

/** What has begun is seen by its owner, or it sees that the registration has ended. */
TEST(DirectWriter, BeginsNothingAfterTheEnd) {
    const auto list = std::make_unique<RegistrationList>();
    const auto words = std::make_unique<DirectWrites>();
    RegistrationTable table;
    table.publish(list.get());
    DirectWriter writer(words.get(), list.get());
    const unsigned char memory[1] = {};
    for (int round = 0; round < 2000; ++round) {
        const uint64_t id = table.add(memory, 1);
        bool is_seen = false;
        std::thread owner([&] {
            table.remove(id);
            is_seen = words->contain(id);
        });
        DirectWriter::Hold hold = writer.begin(id);
        owner.join();
        EXPECT_TRUE(hold == nullptr || is_seen);
        hold.reset();
        EXPECT_FALSE(writer.begin(id));
        EXPECT_FALSE(words->contain(id));
    }
    table.cancel(list.get());
}

TEST(DirectWriter, HasAPlaceForEachRegistration) {
    const auto list = std::make_unique<RegistrationList>();
    const auto words = std::make_unique<DirectWrites>();
    RegistrationTable table;
    table.publish(list.get());
    DirectWriter writer(words.get(), list.get());
    const unsigned char memory[1] = {};
    std::vector<uint64_t> ids;
    std::vector<DirectWriter::Hold> holds;
    for (size_t i = 0; i < DirectWrites::kPlaces; ++i) {
        ids.push_back(table.add(memory, 1));
        EXPECT_TRUE(writer.has_room(ids.back()));
        holds.push_back(writer.begin(ids.back()));
        EXPECT_TRUE(holds.back());
    }
    const uint64_t more = table.add(memory, 1);
    EXPECT_FALSE(writer.has_room(more));
    EXPECT_FALSE(writer.begin(more));
    EXPECT_TRUE(writer.has_room(ids[3]));
    DirectWriter::Hold second = writer.begin(ids[3]);
    holds[3].reset();
    EXPECT_TRUE(words->contain(ids[3])) << "the second one is under way";
    second.reset();
    EXPECT_FALSE(words->contain(ids[3]));
    EXPECT_TRUE(writer.begin(more));
    table.cancel(list.get());
}

/** Another thread copies for a peer. */
TEST(RegistrationTableUse, EndsBeforeTheRegistrationIsGone) {
    RegistrationTable table;
    const unsigned char memory[64] = {};
    const auto address = reinterpret_cast<uint64_t>(memory);
    const uint64_t id = table.add(memory, sizeof(memory));
    std::atomic<bool> uses{false};
    std::atomic<bool> ended{false};
    std::thread copier([&] {
        RegistrationTable::Use use = table.use(id, address, sizeof(memory));
        uses = static_cast<bool>(use);
        usleep(50'000);
        ended = true;
        use.reset();
    });
    while (!uses) {
    }
    table.remove(id);
    EXPECT_TRUE(ended);
    copier.join();
    EXPECT_FALSE(table.use(id, address, 1));
}

}  // namespace
}  // namespace gpushm
