// SPDX-License-Identifier: BSD-3-Clause
// Lies of a peer about handles of GPU memory: it gets no more than others, and nothing adds up.
#include "test/gtest/core/transport/port_gpu_peer.hpp"

#include "core/shm/descriptor_channel.hpp"

#include <unistd.h>

#include <cstring>
#include <deque>
#include <optional>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 4096;

/** A peer that only speaks by hand, in this process. */
struct Liar {
    Liar() {
        const char *why = "";
        sender = MailboxSender::attach(victim->address(), mailbox->address(), &why);
    }
    template <typename Payload>
    bool send(CellKind kind, const Payload &payload) {
        ReservedCell cell;
        if (!sender->reserve(&cell)) {
            return false;
        }
        memcpy(cell.cell->payload, &payload, sizeof(payload));
        sender->publish(cell, kind, 0, sizeof(payload));
        return true;
    }
    /** How many messages of the kind the victim has sent; the others are dropped. */
    size_t drain(CellKind kind) {
        size_t count = 0;
        ReceivedCell cell;
        while (mailbox->receive(&cell)) {
            count += cell.kind == kind;
            mailbox->release();
        }
        return count;
    }

    TestPort victim{kMappingPort};
    std::optional<MailboxReceiver> mailbox = MailboxReceiver::create(16, kSlotBytes);
    std::optional<MailboxSender> sender;
    Connection &connection = victim.connection(mailbox->address());
};

FreshProcess unasked("handles-nobody-asked-for", [] {
    constexpr uint64_t kOwnerName = 5;
    CHECK(enter_primary_context(0));
    const LogCapture log;
    Outcome outcome;
    Buffer local(MemoryKind::device, kBytes);
    Liar liar;
    const ShownRegistrations shown(*liar.mailbox);
    const Registration registration(local.data(), kBytes);
    RemoteMemory remote = registration.at();
    remote.buffer = {
        kOwnerName, 1, 1, kBytes, 0, MemoryKind::device, BufferKey::Sharing::file_descriptor};
    CHECK(liar.connection.get(local.data(), kBytes, remote, nullptr, outcome.completion()) ==
          Status::in_progress);
    CHECK(liar.drain(CellKind::map_request) == 1);
    const UniqueFd given(dup(0));
    MapAnswer answer = {kOwnerName, 0, BufferKey::Sharing::file_descriptor, {}};
    const size_t before = open_descriptors();
    for (answer.buffer_id = 2; answer.buffer_id < 200; ++answer.buffer_id) {
        send_descriptor(liar.victim->address().cookie, {kOwnerName, answer.buffer_id}, given);
        CHECK(liar.send(CellKind::map_answer, answer));
        if (answer.buffer_id % 8 == 0) {  // more than may be opened at a time
            liar.victim->progress();
        }
    }
    CHECK(open_descriptors() == before);
    CHECK(log.count("was not asked for") == 1);
    CHECK(!liar.connection.failed());
    return 0;
});

FreshProcess flooded("requests-without-an-end", [] {
    CHECK(enter_primary_context(0));
    const LogCapture log;
    Liar liar;
    Buffer local(MemoryKind::device, kBytes);
    const MapRequest request = {make_buffer_key(query_memory(local.data()))};
    for (int i = 0; i < 1000 && !liar.connection.failed(); ++i) {  // nobody receives the answers
        CHECK(liar.send(CellKind::map_request, request));
        liar.victim->progress();
    }
    CHECK(liar.connection.failed());
    CHECK(log.count("without waiting for answers") == 1);
    return 0;
});

FreshProcess asking_for_many("requests-for-more-than-is-remembered", [] {
    constexpr size_t kBuffers = 1024 + 3;
    constexpr size_t kSmall = 256;
    CHECK(enter_primary_context(0));
    Liar liar;
    std::deque<Buffer> buffers;
    size_t dropped = 0;
    for (size_t i = 0; i < kBuffers; ++i) {
        const Buffer &buffer = buffers.emplace_back(MemoryKind::device, kSmall);
        CHECK(liar.send(CellKind::map_request,
                        MapRequest{make_buffer_key(query_memory(buffer.data()))}));
        liar.victim->progress();
        dropped += liar.drain(CellKind::unmap_notice);
    }
    CHECK(dropped ==
          kBuffers - 1024);  // the oldest: the peer is told of each that it may have mapped
    buffers.clear();
    CHECK(progress_until({&liar.victim}, [&] {
        dropped += liar.drain(CellKind::unmap_notice);
        return dropped >= kBuffers;
    }));
    settle({&liar.victim});
    CHECK(dropped + liar.drain(CellKind::unmap_notice) == kBuffers);
    return 0;
});

TEST(PortGpuMappingLies, PeerThatBreaksTheRulesTakesNoMoreThanOthers) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(unasked.run(), 0);
    EXPECT_EQ(flooded.run(), 0);
    EXPECT_EQ(asking_for_many.run(), 0);
}

}  // namespace
}  // namespace gpushm
