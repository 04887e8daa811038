// SPDX-License-Identifier: BSD-3-Clause
// A message through a mailbox to another process, and its answer: payload in the cell, in the slot,
// or in a staging ring.
#include "micro.hpp"

#include "core/shm/mailbox_receiver.hpp"
#include "core/shm/mailbox_sender.hpp"
#include "core/shm/staging_ring.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace gpushm::perf {
namespace {

constexpr uint32_t kCells = 1024;
constexpr uint64_t kSlotBytes = 8192;
constexpr size_t kRingBytes = 4u << 20;

enum class Way { cell, slot, ring };

/** What one process tells the other. */
struct Addresses {
    MailboxAddress mailbox;
    int ring_fd;
    Cookie ring_cookie;
};

/** One side of a pair: sends to the other side, and receives from it. */
class Side {
public:
    Side()
        : own_(MailboxReceiver::create(kCells, kSlotBytes)),
          ring_(StagingRingSender::create(kRingBytes)) {
        if (!own_ || !ring_) {
            throw std::runtime_error("no shared memory for a mailbox and a ring");
        }
    }

    Addresses addresses() const { return {own_->address(), ring_->segment_fd(), ring_->cookie()}; }
    void connect(const Addresses &peer) {
        const char *why = "";
        to_peer_ = MailboxSender::attach(peer.mailbox, own_->address(), &why);
        from_peer_ =
            StagingRingReceiver::attach(peer.mailbox.pid, peer.ring_fd, peer.ring_cookie, &why);
        if (!to_peer_ || !from_peer_) {
            throw std::runtime_error(why);
        }
    }

    /** `data` is copied as a message is. */
    void send(Way way, const unsigned char *data, size_t length) {
        RingSpan span;
        if (way == Way::ring) {
            span = *ring_->allocate(length);
            memcpy(ring_->data(span), data, length);
        }
        ReservedCell cell;
        while (!to_peer_->reserve(&cell)) {
        }
        switch (way) {
            case Way::cell:
                memcpy(cell.cell->payload, data, length);
                publish(cell, CellKind::am_inline, length);
                break;
            case Way::slot:
                memcpy(to_peer_->slot(cell), data, length);
                publish(cell, CellKind::am_slot, length);
                break;
            case Way::ring:
                memcpy(cell.cell->payload, &span, sizeof(span));
                publish(cell, CellKind::am_ring, sizeof(span));
                break;
        }
    }

    /** Copies the next message, as UCP does to its receive buffer; its length. */
    size_t receive(unsigned char *destination) {
        ReceivedCell message;
        while (!own_->receive(&message)) {
            // The other process may need this CPU.
            if (++polls_ % 4096 == 0) {
                sched_yield();
            }
        }
        size_t length = message.length;
        if (message.kind == CellKind::am_ring) {
            RingSpan span;
            memcpy(&span, message.payload, sizeof(span));
            length = span.length;
            memcpy(destination, from_peer_->open(span), length);
            from_peer_->close(span);
        } else {
            memcpy(destination, message.slot != nullptr ? message.slot : message.payload, length);
        }
        kind_ = message.kind;
        own_->release();
        return length;
    }

    Way last_way() const {
        return kind_ == CellKind::am_inline ? Way::cell
                                            : (kind_ == CellKind::am_slot ? Way::slot : Way::ring);
    }

private:
    void publish(const ReservedCell &cell, CellKind kind, size_t length) {
        to_peer_->publish(cell, kind, 0, static_cast<uint32_t>(length));
    }

    std::optional<MailboxReceiver> own_;
    std::optional<StagingRingSender> ring_;
    std::optional<MailboxSender> to_peer_;
    std::optional<StagingRingReceiver> from_peer_;
    CellKind kind_ = CellKind::am_inline;
    unsigned polls_ = 0;
};

void tell(int descriptor, const Addresses &addresses) {
    if (write(descriptor, &addresses, sizeof(addresses)) != sizeof(addresses)) {
        throw std::runtime_error("the other process has ended");
    }
}

Addresses hear(int descriptor) {
    Addresses addresses;
    if (read(descriptor, &addresses, sizeof(addresses)) != sizeof(addresses)) {
        throw std::runtime_error("the other process has ended");
    }
    return addresses;
}

/** The other process: answers each message by the way it came, until it is killed. */
[[noreturn]] void echo(int in, int out) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
        Side side;
        tell(out, side.addresses());
        side.connect(hear(in));
        std::vector<unsigned char> buffer(kSlotBytes + kRingBytes);
        for (;;) {
            const size_t length = side.receive(buffer.data());
            side.send(side.last_way(), buffer.data(), length);
        }
    } catch (const std::exception &) {
        _exit(1);
    }
}

class EchoProcess {
public:
    EchoProcess() {
        int down[2], up[2];
        if (pipe(down) != 0 || pipe(up) != 0) {
            throw std::runtime_error("no pipe");
        }
        pid_ = fork();
        if (pid_ == 0) {
            echo(down[0], up[1]);
        }
        const Addresses peer = hear(up[0]);
        tell(down[1], side_.addresses());
        side_.connect(peer);
        for (int descriptor : {down[0], down[1], up[0], up[1]}) {
            close(descriptor);
        }
    }
    ~EchoProcess() {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    EchoProcess(const EchoProcess &) = delete;
    EchoProcess &operator=(const EchoProcess &) = delete;

    Side &side() { return side_; }

private:
    Side side_;
    pid_t pid_ = -1;
};

/** An iteration is a message and its answer: two hops. */
void message_and_answer(benchmark::State &state, Way way) {
    const auto length = static_cast<size_t>(state.range(0));
    std::vector<unsigned char> sent(length, 0x5a), received(length);
    try {
        EchoProcess process;
        for (auto _ : state) {
            process.side().send(way, sent.data(), length);
            process.side().receive(received.data());
        }
    } catch (const std::exception &error) {
        state.SkipWithError(error.what());
        return;
    }
    if (received != sent) {
        state.SkipWithError("the answer is not the message");
    }
    count_bytes(state, 2 * length);
}

}  // namespace

void register_message_hops() {
    benchmark::RegisterBenchmark("message_and_answer/cell", message_and_answer, Way::cell)
        ->Arg(8)
        ->Arg(48)
        ->Arg(104);
    benchmark::RegisterBenchmark("message_and_answer/slot", message_and_answer, Way::slot)
        ->RangeMultiplier(4)
        ->Range(128, kSlotBytes);
    benchmark::RegisterBenchmark("message_and_answer/ring", message_and_answer, Way::ring)
        ->RangeMultiplier(4)
        ->Range(128, 512 << 10);
}

}  // namespace gpushm::perf
