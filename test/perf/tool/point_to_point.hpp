// SPDX-License-Identifier: BSD-3-Clause
// What the measurements of messages between pairs of ranks share: buffers, contents, and the way in
// which messages go.
#pragma once

#include "../message_buffers.hpp"
#include "cell.hpp"
#include "message_way.hpp"
#include "placed_buffers.hpp"
#include "sampling.hpp"

#include <memory>

namespace gpushm::perf {

/** The first half of the ranks are senders; the receiver of each is as far behind the middle. */
class PointToPoint : public Measurement {
public:
    void prepare(size_t size) override;
    void renew_contents() override;
    void check() override;

protected:
    /** `ranks`, an even number, and `driver` outlive the object. `driver` may be null for host
     * memory. */
    PointToPoint(const Cell &cell, Ranks &ranks, const Driver *driver, size_t piece_bytes);

    /** Messages in one direction that have to arrive for check(): of the present size. Those of
     * more than 64 MiB share buffers. */
    virtual unsigned messages() const = 0;
    /** Whether this rank sends messages that are measured, and whether it receives such. */
    virtual bool sends() const = 0;
    virtual bool receives() const = 0;

    /** The messages [0, messages()); none where this rank has no such. */
    const std::vector<Message> &sent() const { return sent_; }
    const std::vector<Message> &received() const { return received_; }
    size_t size() const { return size_; }

    bool is_sender() const { return ranks_.rank() < ranks_.count() / 2; }
    int peer() const {
        return ranks_.rank() + (is_sender() ? ranks_.count() / 2 : -ranks_.count() / 2);
    }

    const Cell cell_;
    Ranks &ranks_;
    std::unique_ptr<MessageWay> way_;
    std::unique_ptr<PlacedBuffers> placed_;  // null where no managed memory is placed

private:
    uint64_t seed_of(int sender) const;
    std::vector<Message> messages_in(const std::unique_ptr<MessageBuffers> &buffers) const;
    MemoryType type_of(MemoryKind kind) const;
    std::unique_ptr<MessageWay> make_way() const;

    const Driver *driver_;
    const size_t piece_bytes_;
    std::unique_ptr<MessageBuffers> source_;
    std::unique_ptr<MessageBuffers> destination_;
    size_t size_ = 0;
    unsigned slots_ = 1;
    uint64_t contents_ = 0;  // counts what has been sent, alike on all ranks
    std::vector<Message> sent_;
    std::vector<Message> received_;
};

/** Latency. Half of a round trip, or of one direction where buffers or the receiver have to be
 * prepared for each message. */
std::unique_ptr<Measurement> measure_latency(const Cell &cell, Ranks &ranks, const Driver *driver,
                                             size_t piece_bytes);

/** A window of window_of(size) messages of each sender and the short answer of its receiver, or a
 * window in each direction. */
std::unique_ptr<Measurement> measure_windows(const Cell &cell, Ranks &ranks, const Driver *driver,
                                             size_t piece_bytes);

}  // namespace gpushm::perf
