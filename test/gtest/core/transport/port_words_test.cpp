// SPDX-License-Identifier: BSD-3-Clause
// Two ports that talk while somebody changes words of what they share: headers, sender records and
// cells of the mailboxes, headers of the rings. Most are put right again. Run it with
// AddressSanitizer to see accesses, too. FUZZ_MUTATIONS, FUZZ_SEED: see port_fuzz_test.cpp.
#include "test/gtest/core/transport/port_fuzz_support.hpp"

#include "core/shm/staging_ring.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr PortConfig kTalker = {32 << 10, 4096, 4096, 16, false, false};
constexpr MailboxGeometry kGeometry = {kTalker.cell_count, kSlotBytes};

Effects effects;

/** Words that processes share. */
struct Part {
    unsigned char *begin;
    size_t bytes;
};

/** The ring that a port of this process has offered, until its receiver has attached. */
std::optional<Segment> offered_ring() {
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code error;
        const std::string name = std::filesystem::read_symlink(entry.path(), error).string();
        if (name.find("gpushm-ring") != std::string::npos) {
            const char *why = "";
            return Segment::attach(getpid(), std::stoi(entry.path().filename()), 0, &why);
        }
    }
    return std::nullopt;
}

/** One of the two ports, and views of its mailbox and of its ring. */
struct Talker {
    Talker() : port(kTalker) {
        const char *why = "";
        mailbox = Segment::attach(getpid(), port->address().segment_fd, 0, &why);
        port.on_message = [](uint8_t, const unsigned char *data, size_t length) {
            EXPECT_LE(length, kSlotBytes);
            std::vector<unsigned char> copy(data, data + length);  // all of it can be read
            ++effects.messages;
        };
    }
    ~Talker() {
        port.destroy();
        for (const auto &transfer : transfers) {
            EXPECT_LE(transfer->calls, 1u);
        }
        effects.writes += area.written();
        EXPECT_TRUE(area.canaries());
    }

    TestPort port;
    SharedArea area;
    std::optional<Segment> mailbox;
    std::optional<Segment> ring;
    Connection *connection = nullptr;  // to the other one
    std::vector<std::unique_ptr<LocalTransfer>> transfers;
};

class Talk {
public:
    explicit Talk(Random &random) : random_(random) {
        connect(talkers_[0], talkers_[1]);
        connect(talkers_[1], talkers_[0]);
    }

    /** False when they do not talk any more. */
    bool step() {
        for (const size_t i : {0, 1}) {
            send(talkers_[i]);
            transfer(talkers_[i], talkers_[1 - i]);
        }
        change_a_word();
        for (Talker &talker : talkers_) {
            for (size_t i = random_.below(3); i > 0; --i) {
                talker.port->progress();
            }
        }
        if (restored_ != nullptr) {
            *restored_ = right_;
            restored_ = nullptr;
        }
        return !talkers_[0].connection->failed() && !talkers_[1].connection->failed() &&
               refused_ < 100;
    }

private:
    void connect(Talker &from, Talker &to) {
        from.connection = &from.port.connection(to.port);
        unsigned char byte = 0;
        Outcome outcome;
        from.connection->put(&byte, 1, to.area.remote(), nullptr, outcome.completion());
        from.port->progress();
        from.ring = offered_ring();
        ASSERT_TRUE(from.ring);
        ASSERT_TRUE(progress_until({&from.port, &to.port}, [&] { return outcome.done(); }));
        unsigned char *base = from.mailbox->data();
        auto *records = MailboxGeometry::sender_records(base);
        parts_.push_back({base, sizeof(MailboxHeader)});
        parts_.push_back({reinterpret_cast<unsigned char *>(records), 2 * sizeof(SenderRecord)});
        parts_.push_back({reinterpret_cast<unsigned char *>(MailboxGeometry::direct_writes(base)),
                          2 * sizeof(DirectWrites)});
        parts_.push_back({from.ring->data(), sizeof(RingHeader)});
        for (uint64_t ticket = 0; ticket < kGeometry.cell_count; ++ticket) {
            parts_.push_back(
                {reinterpret_cast<unsigned char *>(kGeometry.cell(base, ticket)), sizeof(Cell)});
        }
    }

    void send(Talker &from) {
        PatternMessage message = {random_.below(400), random_.next()};
        size_t packed;
        const Status status =
            random_.below(2) == 0
                ? from.connection->am_short(1, 0, nullptr, 0)
                : from.connection->am_pack(1, PatternMessage::pack, &message, &packed);
        refused_ = status == Status::no_resource ? refused_ + 1 : 0;
    }

    void transfer(Talker &from, Talker &to) {
        auto &all = from.transfers;
        all.erase(std::remove_if(all.begin(), all.end(),
                                 [](const auto &transfer) { return transfer->calls != 0; }),
                  all.end());
        if (all.size() >= 4) {
            return;
        }
        const size_t length = 1 + random_.below(SharedArea::kRegistered);
        auto started = std::make_unique<LocalTransfer>(length, effects);
        const RemoteMemory remote = to.area.remote();
        const Status status = random_.below(2) == 0
                                  ? from.connection->put(started->memory.get(), length, remote,
                                                         this, started->completion())
                                  : from.connection->get(started->memory.get(), length, remote,
                                                         this, started->completion());
        if (status == Status::in_progress) {
            all.push_back(std::move(started));
        }
    }

    uint64_t changed(uint64_t word) {
        switch (random_.below(6)) {
            case 0:
                return word ^ uint64_t { 1 } << random_.below(64);
            case 1:
                return word + random_.below(5) - 2;
            case 2:
                return random_.below(70000);
            case 3:
                return ~uint64_t{0} >> random_.below(64);
            case 4:
                return word << 32 | word >> 32;
            default:
                return random_.next();
        }
    }

    void change_a_word() {
        const Part &part = parts_[random_.below(parts_.size())];
        auto *word = reinterpret_cast<uint64_t *>(part.begin) + random_.below(part.bytes / 8);
        right_ = *word;
        *word = changed(right_);
        // Most are put right, so that the talk goes on.
        restored_ = random_.below(4) != 0 ? word : nullptr;
    }

    Random &random_;
    Talker talkers_[2];
    std::vector<Part> parts_;
    uint64_t *restored_ = nullptr;
    uint64_t right_ = 0;
    size_t refused_ = 0;  // sends in a row
};

TEST(PortWords, ChangedWordsDoNoHarm) {
    const FuzzPlan plan;
    Random random(plan.seed);
    uint64_t done = 0;
    uint64_t talks = 0;
    while (done < plan.mutations && !testing::Test::HasFailure()) {
        const LogCapture log;
        Talk talk(random);
        ++talks;
        for (unsigned i = 0; i < 2000; ++i) {
            ++done;
            if (!talk.step()) {
                break;
            }
        }
    }
    EXPECT_GT(done / talks, 50u) << "talks end before anything happens in them";
    EXPECT_GT(talks, done / 2000) << "no change ends a talk";
    effects.expect_at_least(done / 10, talks / 2, done / 100000);
}

}  // namespace
}  // namespace gpushm
