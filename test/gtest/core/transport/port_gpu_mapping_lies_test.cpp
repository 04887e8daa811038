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
    /** How many messages of the kind the victim has sent, and what the last one says; the others
     * are dropped. */
    template <typename Payload>
    size_t drain(CellKind kind, Payload *last) {
        size_t count = 0;
        ReceivedCell cell;
        while (mailbox->receive(&cell)) {
            if (cell.kind == kind) {
                ++count;
                memcpy(last, cell.payload, sizeof(*last));
            }
            mailbox->release();
        }
        return count;
    }
    size_t drain(CellKind kind) {
        char nothing;
        return drain(kind, &nothing);
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
    uint64_t kept = 0;
    for (size_t i = 0; i < kBuffers; ++i) {
        const Buffer &buffer = buffers.emplace_back(MemoryKind::device, kSmall);
        CHECK(liar.send(CellKind::map_request,
                        MapRequest{make_buffer_key(query_memory(buffer.data()))}));
        liar.victim->progress();
        if (i == 0) {
            kept = make_buffer_key(query_memory(buffer.data())).buffer_id;
            liar.connection.exports().keep(kept);
        }
        UnmapNotice notice = {};
        dropped += liar.drain(CellKind::unmap_notice, &notice);
        CHECK(notice.buffer_id != kept);
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

/** Chunks that lie in a GPU ring which was never offered, or was refused. */
FreshProcess no_gpu_ring("chunks-in-no-gpu-ring", [] {
    CHECK(enter_primary_context(0));
    const LogCapture log;
    Buffer local(MemoryKind::device, kBytes);
    Liar liar;
    const ShownRegistrations shown(*liar.mailbox);
    const Registration registration(local.data(), kBytes);
    std::optional<StagingRingSender> ring = StagingRingSender::create(1 << 20);
    CHECK(ring && liar.send(CellKind::ring_offer, RingOffer{ring->cookie(), ring->segment_fd()}));
    CHECK(liar.send(CellKind::gpu_ring_answer, GpuRingAnswer{1}));
    GpuRingOffer offer = {{}, device_identity(0)};
    offer.buffer = {5, 1, 1, 1 << 20, 0, MemoryKind::device, BufferKey::Sharing::ipc_handle};
    for (unsigned round = 0; round < 3; ++round) {
        Outcome outcome;
        local.fill(7);
        CHECK(liar.connection.get(local.data(), kBytes, registration.at(), nullptr,
                                  outcome.completion()) == Status::in_progress);
        GetRequest request = {};
        CHECK(liar.drain(CellKind::get_request, &request) == 1);
        const std::optional<RingSpan> span = ring->allocate(round == 1 ? kBytes / 2 : kBytes);
        CHECK(span);
        TransferChunk chunk = {};
        chunk.transfer_id = request.transfer_id;
        chunk.total = kBytes;
        chunk.span = *span;
        chunk.length = kBytes;
        chunk.is_reply = 1;
        chunk.in_gpu_ring = round == 1 ? 0 : 1;  // 0: the span is not so long
        CHECK(liar.send(CellKind::chunk_ring, chunk));
        CHECK(progress_until({&liar.victim}, [&] { return outcome.done(); }));
        CHECK(outcome.status == Status::gpu_error && local.check(0, kBytes, 7, 0).empty());
        CHECK(ring->allocate(kBytes));  // the span was released
        // Memory of nobody that this process knows; the handle never comes.
        GpuRingAnswer answer = {1};
        CHECK(liar.send(CellKind::gpu_ring_offer, offer));
        liar.victim->progress();
        const size_t answers = liar.drain(CellKind::gpu_ring_answer, &answer);
        CHECK(answers == 0 || answer.accepted == 0);  // the second is one too many
        CHECK(answers == round % 2);
    }
    CHECK(!liar.connection.failed());
    return 0;
});

TEST(PortGpuMappingLies, AChunkInNoGpuRingFailsItsTransferOnly) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(no_gpu_ring.run(), 0);
}

TEST(PortGpuMappingLies, PeerThatBreaksTheRulesTakesNoMoreThanOthers) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(unasked.run(), 0);
    EXPECT_EQ(flooded.run(), 0);
    EXPECT_EQ(asking_for_many.run(), 0);
}

}  // namespace
}  // namespace gpushm
