// SPDX-License-Identifier: BSD-3-Clause
// A hostile peer: mutated control messages, ring headers and mailbox words against a port that has
// transfers of its own. Run it with AddressSanitizer to see accesses, too.
//
//   FUZZ_MUTATIONS=n   how many (1000000)
//   FUZZ_SEED=n        other ones (1)
#include "test/gtest/core/transport/port_fuzz_support.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr PortConfig kVictim = {32 << 10, 4096, 4096, 16};
constexpr size_t kRegistered = SharedArea::kRegistered;

Effects effects;

/** A victim and its hostile peer. */
class Duel {
public:
    explicit Duel(Random &random) : random_(random), victim_(kVictim) {
        victim_.on_message = [this](uint8_t, const unsigned char *data, size_t length) {
            EXPECT_LE(length, kSlotBytes);
            ++effects.messages;
            for (size_t i = 0; i < length; ++i) {
                sum_ += data[i];
            }
        };
        const char *why = "";
        mailbox_ = MailboxReceiver::create(16, kSlotBytes);
        sender_ = MailboxSender::attach(victim_->address(), mailbox_->address(), &why);
        connection_ = &victim_.connection(mailbox_->address());
        records_ = Segment::attach(getpid(), victim_->address().segment_fd, 0, &why);
        ring_ = StagingRingSender::create(16384);
        const RingOffer offer = {ring_->cookie(), ring_->segment_fd()};
        send(CellKind::ring_offer, &offer, sizeof(offer), sizeof(offer), ~0u);
        victim_->progress();
    }
    ~Duel() {
        victim_.destroy();
        for (const auto &transfer : transfers_) {
            EXPECT_LE(transfer->calls, 1u);
        }
    }

    /** One step of both; false when they have nothing left to do with each other. */
    bool step() {
        drain();
        if (random_.below(4) == 0) {
            start_transfer();
        }
        if (random_.below(50) == 0) {
            effects.writes += area_->written();
            area_ = nullptr;
            area_ = std::make_unique<SharedArea>();
        }
        attack();
        for (size_t i = random_.below(3); i > 0; --i) {
            victim_->progress();
        }
        if (connection_->failed()) {
            victim_->progress();
            EXPECT_EQ(victim_.failed_connections.size(), 1u);
            for (const auto &transfer : transfers_) {
                EXPECT_EQ(transfer->calls, 1u);
            }
            return false;
        }
        return !stuck_;
    }
    bool canaries() const { return area_->canaries(); }

private:
    /** What may be a boundary of something. */
    uint64_t value() {
        const RemoteMemory remote = area_->remote();
        const uint64_t values[] = {0,
                                   1,
                                   2,
                                   4096,
                                   8192,
                                   kSlotBytes,
                                   kSlotBytes + 1,
                                   16384,
                                   32768,
                                   uint64_t{1} << 31,
                                   uint64_t{1} << 32,
                                   uint64_t{1} << 46,
                                   uint64_t{1} << 63,
                                   ~uint64_t{0},
                                   remote.address,
                                   remote.address + kRegistered,
                                   remote.registration,
                                   kRegistered,
                                   last_id_,
                                   position_,
                                   random_.next(),
                                   random_.below(70000)};
        const uint64_t chosen = values[random_.below(std::size(values))];
        return random_.below(3) == 0 ? chosen + random_.below(5) - 2 : chosen;
    }
    /** The right value most of the time. */
    uint64_t mutated(uint64_t right) { return random_.below(8) == 0 ? value() : right; }

    void start_transfer() {
        transfers_.erase(std::remove_if(transfers_.begin(), transfers_.end(),
                                        [](const auto &transfer) { return transfer->calls != 0; }),
                         transfers_.end());
        if (transfers_.size() >= 12) {
            return;
        }
        RemoteMemory remote = {1, 1};
        const bool may_be_block = random_.below(4) != 0;
        if (may_be_block) {
            remote.buffer.kind = MemoryKind::device;
            remote.of_program = true;
        }
        const size_t length = 1 + random_.below(may_be_block ? 100 : 20000);
        auto transfer = std::make_unique<LocalTransfer>(length, effects);
        const Completion completion = transfer->completion();
        const bool put = random_.below(2) == 0;
        const Status status =
            put ? connection_->put(transfer->memory.get(), length, remote, this, completion)
                : connection_->get(transfer->memory.get(), length, remote, this, completion);
        if (status == Status::in_progress) {
            transfers_.push_back(std::move(transfer));
        }
    }

    /** Takes what the victim sends and answers its offer of a ring. */
    void drain() {
        ReceivedCell cell;
        while (mailbox_->receive(&cell)) {
            if (cell.kind == CellKind::ring_offer) {
                RingOffer offer;
                memcpy(&offer, cell.payload, sizeof(offer));
                const char *why = "";
                victim_ring_ = Segment::attach(getpid(), offer.segment_fd, 0, &why);
                const RingAnswer answer = {random_.below(4) != 0};
                send(CellKind::ring_answer, &answer, sizeof(answer), sizeof(answer), ~0u);
            } else if (cell.kind == CellKind::get_blocks) {
                note_blocks(cell);
            } else if (cell.kind == CellKind::get_request) {
                GetRequest request;
                memcpy(&request, cell.payload, sizeof(request));
                last_id_ = request.transfer_id;
                last_total_ = request.length;
                last_is_get_ = true;
            } else if (cell.kind == CellKind::chunk_ring || cell.kind == CellKind::chunk_slot) {
                TransferChunk chunk;
                memcpy(&chunk, cell.payload, sizeof(chunk));
                last_id_ = chunk.transfer_id;
                last_total_ = chunk.total;
                last_is_get_ = false;
                last_end_ = chunk.offset + chunk.length;
                if (cell.kind == CellKind::chunk_ring) {
                    released_ = chunk.span.position + chunk.span.length;
                }
            }
            mailbox_->release();
        }
    }

    void attack() {
        const size_t what = random_.below(1000);
        if (what < 150 && victim_ring_) {
            auto *header = reinterpret_cast<RingHeader *>(victim_ring_->data());
            header->released = what < 2 ? value() : released_;
        } else if (what < 160) {
            auto *header = reinterpret_cast<MailboxHeader *>(records_->data());
            // Rarely tail: nothing more comes through a mailbox whose tail makes no sense.
            switch (random_.below(8)) {
                case 0:
                    header->tail = value();
                    break;
                case 1:
                    header->head = value();
                    break;
                default:
                    header->tail ^= 1;
                    break;
            }
        } else if (what < 170) {
            mutate_record();
        } else {
            send_mutated();
        }
    }

    void mutate_record() {
        SenderRecord *records = MailboxGeometry::sender_records(records_->data());
        SenderRecord &record = records[random_.below(4)];
        MailboxAddress address = record.address;
        switch (random_.below(3)) {
            case 0:
                address.pid = static_cast<int32_t>(value());
                break;
            case 1:
                address.segment_fd = static_cast<int32_t>(random_.below(64));
                break;
            case 2:
                address.cookie.low = value();
                break;
        }
        if (&record !=
            &records[0]) {  // its own stays, or nothing would reach the connection any more
            record.address = address;
            record.owner = static_cast<uint64_t>(getpid()) << 1 | random_.below(2);
        }
    }

    void note_blocks(const ReceivedCell &cell) {
        BlockMessage message;
        memcpy(&message, cell.payload, sizeof(message));
        blocks_id_ = message.transfer_id;
        blocks_bytes_ = 0;
        for (size_t i = 0; i < message.count; ++i) {
            Block block;
            memcpy(&block, cell.slot + i * sizeof(block), sizeof(block));
            blocks_bytes_ += block.length;
        }
    }

    void send_mutated() {
        unsigned char payload[Cell::kInlineBytes];
        for (unsigned char &byte : payload) {
            byte = static_cast<unsigned char>(random_.next());
        }
        // Beyond the last kind now and then; rarely the one that ends it all.
        auto kind =
            static_cast<CellKind>(1 + random_.below(static_cast<size_t>(CellKind::block_data) + 1));
        if (kind == CellKind::close && random_.below(20) != 0) {
            kind = CellKind::chunk_ring;
        }
        const size_t length = fill(kind, payload);
        size_t stated = carries_slot(kind) ? random_.below(kSlotBytes + 1) : length;
        std::vector<Block> blocks;
        if (kind == CellKind::put_blocks || kind == CellKind::get_blocks) {
            stated = fill_blocks(kind, payload, &blocks);
        } else if (kind == CellKind::block_data && random_.below(300) != 0) {
            stated = blocks_bytes_;
        }
        if (random_.below(16) == 0) {
            stated = value();
        }
        const unsigned sender = random_.below(16) == 0 ? random_.below(1 << 16) : ~0u;
        send(kind, payload, length, stated, sender, blocks);
    }

    template <typename Payload>
    static size_t put_into(unsigned char *bytes, const Payload &payload) {
        memcpy(bytes, &payload, sizeof(payload));
        return sizeof(payload);
    }

    RingSpan span() {
        RingSpan span = {mutated(position_), mutated(1 + random_.below(8192))};
        if (span.length <= 16384 && span.position % 16384 + span.length > 16384) {
            span.position = mutated((span.position + 16383) / 16384 * 16384);
        }
        return span;
    }

    size_t fill(CellKind kind, unsigned char *payload) {
        switch (kind) {
            case CellKind::am_ring: {
                const RingSpan used = span();
                position_ = std::max(position_, used.position + used.length);
                return put_into(payload, used);
            }
            case CellKind::ring_offer: {
                Cookie cookie = ring_->cookie();
                cookie.high = mutated(cookie.high);
                return put_into(
                    payload, RingOffer{cookie, static_cast<int32_t>(mutated(ring_->segment_fd()))});
            }
            case CellKind::ring_answer:
                return put_into(payload, RingAnswer{static_cast<uint32_t>(random_.below(3))});
            case CellKind::chunk_slot:
            case CellKind::chunk_ring:
                return put_into(payload, chunk(kind));
            case CellKind::get_request: {
                const RemoteMemory remote = area_->remote();
                GetRequest request = {};
                request.transfer_id = mutated(random_.below(9));
                request.address = mutated(remote.address);
                request.length = mutated(1 + random_.below(kRegistered));
                request.registration = mutated(remote.registration);
                request.destination = mutated(remote.address);
                request.shared = {static_cast<uint32_t>(value()), static_cast<uint32_t>(value())};
                request.buffer = name();
                return put_into(payload, request);
            }
            case CellKind::gpu_ring_offer: {
                const GpuRingOffer offer = {name(), mutated(random_.below(2))};
                return put_into(payload, offer);
            }
            case CellKind::gpu_ring_answer:
                return put_into(payload, GpuRingAnswer{static_cast<uint32_t>(random_.below(2))});
            case CellKind::map_request:
                return put_into(payload, MapRequest{name()});
            case CellKind::map_offer:
                return put_into(payload, MapOffer{name()});
            case CellKind::map_answer: {
                MapAnswer answer = {};
                answer.owner = name().owner;
                answer.buffer_id = name().buffer_id;
                answer.sharing = name().sharing;
                for (unsigned char &byte : answer.ipc_handle) {
                    byte = static_cast<unsigned char>(random_.next());
                }
                return put_into(payload, answer);
            }
            case CellKind::help_request: {
                // Of a transfer that nobody has opened: it may not write.
                const RemoteMemory remote = area_->remote();
                const SharedUse use = {static_cast<uint32_t>(mutated(0)),
                                       static_cast<uint32_t>(random_.below(9))};
                return put_into(payload, HelpRequest{mutated(remote.address), mutated(kRegistered),
                                                     mutated(remote.registration), value(),
                                                     mutated(4096), use, value()});
            }
            case CellKind::unmap_notice:
                return put_into(payload, UnmapNotice{name().owner, name().buffer_id});
            case CellKind::transfer_done: {
                // Rarely for a put that is under way: the connection ends with that.
                const bool early =
                    !last_is_get_ && last_end_ < last_total_ && random_.below(50) != 0;
                const bool refused = last_is_get_ && random_.below(50) != 0;
                return put_into(
                    payload, TransferDone{early ? value() : mutated(last_id_), refused ? 1u : 0u});
            }
            case CellKind::put_blocks:
            case CellKind::get_blocks:
                return sizeof(BlockMessage);  // fill_blocks()
            case CellKind::block_data:  // rarely for another one: the connection ends with that
                return put_into(payload, BlockData{random_.below(300) == 0 ? value() : blocks_id_});
            default:
                return random_.below(Cell::kInlineBytes + 1);
        }
    }

    /** Blocks that make sense most of the time; the length of the slot. */
    size_t fill_blocks(CellKind kind, unsigned char *payload, std::vector<Block> *blocks) {
        const RemoteMemory remote = area_->remote();
        size_t bytes = 0;
        for (size_t left = 1 + random_.below(20); left != 0; --left) {
            const uint64_t length = 1 + random_.below(100);
            const uint64_t address = remote.address + random_.below(kRegistered - 100);
            const bool is_wrong = random_.below(4000) == 0;
            blocks->push_back({is_wrong ? value() : address, is_wrong ? value() : length});
            bytes += length;
        }
        const size_t table = blocks->size() * sizeof(Block);
        put_into(payload, BlockMessage{mutated(random_.below(9)), mutated(remote.registration),
                                       random_.below(1000) == 0 ? value() : blocks->size()});
        return table + (kind == CellKind::put_blocks ? bytes : 0);
    }

    /** Of memory that is not there, not shared, of this process or of another. */
    BufferKey name() {
        BufferKey name;
        name.owner = random_.below(2) == 0 ? process_cookie().low : 1 + random_.below(3);
        name.buffer_id = mutated(1 + random_.below(4));
        name.base = mutated(area_->remote().address);
        name.length = mutated(kRegistered);
        name.device = mutated(random_.below(2));
        name.kind = static_cast<MemoryKind>(random_.below(5));
        name.sharing = static_cast<BufferKey::Sharing>(random_.below(4));
        return name;
    }

    TransferChunk chunk(CellKind kind) {
        const RemoteMemory remote = area_->remote();
        TransferChunk chunk = {};
        const bool reply = random_.below(2) == 0;
        chunk.is_reply = reply ? 1 : static_cast<uint32_t>(mutated(0));
        chunk.transfer_id = mutated(reply ? last_id_ : 1 + random_.below(5));
        chunk.total = mutated(reply ? last_total_ : kRegistered);
        chunk.offset = mutated(chunk.total != 0 ? random_.next() % chunk.total : 0);
        chunk.address = mutated(remote.address);
        chunk.registration = mutated(remote.registration);
        chunk.failed = random_.below(30) == 0;
        if (kind == CellKind::chunk_ring) {
            chunk.span = span();
            chunk.length = mutated(chunk.span.length);
            chunk.in_gpu_ring = random_.below(10) == 0;
            position_ = std::max(position_, chunk.span.position + chunk.span.length);
        }
        return chunk;
    }

    /** Publishes by hand: with any stated length, sender and, now and then, a broken state. */
    void send(CellKind kind, const void *payload, size_t length, size_t stated, unsigned sender,
              const std::vector<Block> &blocks = {}) {
        ReservedCell cell;
        if (!sender_->reserve(&cell)) {
            victim_->progress();
            stuck_ = !sender_->reserve(&cell);
            if (stuck_) {
                return;
            }
        }
        memcpy(cell.cell->payload, payload, length);
        std::copy(blocks.begin(), blocks.end(), reinterpret_cast<Block *>(sender_->slot(cell)));
        cell.cell->label.store({static_cast<CellKind>(kind), static_cast<uint8_t>(mutated(1)),
                                static_cast<uint16_t>(sender != ~0u ? sender : 0),
                                static_cast<uint32_t>(stated)});
        uint64_t state = cell.ticket + 1;
        if (random_.below(300) == 0) {
            state ^= uint64_t{1} << random_.below(64);
        }
        cell.cell->state.store(state);
    }

    Random &random_;
    uint64_t blocks_id_ = 0;  // the last message of get_blocks, and what it asks for
    size_t blocks_bytes_ = 0;
    TestPort victim_;
    Connection *connection_;
    std::unique_ptr<SharedArea> area_ = std::make_unique<SharedArea>();
    std::vector<std::unique_ptr<LocalTransfer>> transfers_;
    std::optional<MailboxReceiver> mailbox_;
    std::optional<MailboxSender> sender_;
    std::optional<StagingRingSender> ring_;
    std::optional<Segment> records_;
    std::optional<Segment> victim_ring_;
    uint64_t last_id_ = 0;
    uint64_t last_total_ = 0;
    uint64_t last_end_ = 0;
    bool last_is_get_ = false;
    uint64_t released_ = 0;  // what the victim's ring may be released to
    uint64_t position_ = 0;  // in the own ring
    uint64_t sum_ = 0;
    bool stuck_ = false;
};

TEST(PortFuzz, HostilePeerDoesNoHarm) {
    const FuzzPlan plan;
    Random random(plan.seed);
    uint64_t done = 0;
    uint64_t duels = 0;
    while (done < plan.mutations && !testing::Test::HasFailure()) {
        const LogCapture log;
        Duel duel(random);
        ++duels;
        bool goes_on = true;
        for (unsigned i = 0; i < 2000 && goes_on; ++i) {
            goes_on = duel.step();
            ++done;
            ASSERT_TRUE(i % 64 != 0 || duel.canaries()) << "after mutation " << done;
        }
        ASSERT_TRUE(duel.canaries()) << "after mutation " << done;
    }
    EXPECT_GT(done / duels, 50u) << "connections end before anything happens in them";
    effects.expect_at_least(done / 100, done / 1000, done / 1000);
}

}  // namespace
}  // namespace gpushm
