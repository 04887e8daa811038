// SPDX-License-Identifier: BSD-3-Clause
// Only calls of MPI-1 are used, so that any MPI library will do.
#include "exchange.hpp"

#include "guarded_buffer.hpp"
#include "pattern.hpp"
#include "watchdog.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <memory>

namespace gpushm::mpi_test {
namespace {

constexpr int kDataTag = 1;
constexpr int kTokenTag = 2;
constexpr int kWindow = 8;
constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;
constexpr size_t kSpare = 100;  // of a receive that is larger than the message
// clang-format off
constexpr size_t kSizes[] = {
    0, 1, 7, 8, 4095, 4096, 4097, 8191, 64 * kKiB - 1, 64 * kKiB, 64 * kKiB + 1,
    kMiB - 1, kMiB + 1, 4 * kMiB, 16 * kMiB, 64 * kMiB,
};
// clang-format on
constexpr size_t kLargestOfWindow = kMiB + 1;

enum class Mode { plain, expected, unexpected };

const char *to_string(Mode mode) {
    switch (mode) {
        case Mode::plain:
            return "send/receive";
        case Mode::expected:
            return "receive posted first";
        case Mode::unexpected:
            return "unexpected message";
    }
    return "";
}

std::vector<size_t> sizes_up_to(size_t limit) {
    std::vector<size_t> sizes;
    std::copy_if(std::begin(kSizes), std::end(kSizes), std::back_inserter(sizes),
                 [limit](size_t size) { return size <= limit; });
    return sizes;
}

Message next_message(Session &session, size_t size, size_t offset, size_t spare) {
    return {size, offset, size + spare, message_seed(session.counter++, size)};
}

void send_token(int peer) {
    MPI_Send(nullptr, 0, MPI_BYTE, peer, kTokenTag, MPI_COMM_WORLD);
}

void await_token(int peer) {
    MPI_Recv(nullptr, 0, MPI_BYTE, peer, kTokenTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

MPI_Request start_send(const GuardedBuffer &buffer, const Message &message, int peer) {
    MPI_Request request;
    MPI_Isend(buffer.address(message), static_cast<int>(message.size), MPI_BYTE, peer, kDataTag,
              MPI_COMM_WORLD, &request);
    return request;
}

MPI_Request start_receive(const GuardedBuffer &buffer, const Message &message, int peer) {
    MPI_Request request;
    MPI_Irecv(buffer.address(message), static_cast<int>(message.capacity), MPI_BYTE, peer, kDataTag,
              MPI_COMM_WORLD, &request);
    return request;
}

void check(Outcome &outcome, const GuardedBuffer &buffer, const Message &message,
           const MPI_Status &status, const std::string &what) {
    int count = -1;
    MPI_Get_count(&status, MPI_BYTE, &count);
    std::string wrong;
    if (count != static_cast<int>(message.size)) {
        wrong = "received " + std::to_string(count) + " B";
    } else {
        wrong = buffer.check_destination(message);
    }
    ++outcome.checked_messages;
    if (!wrong.empty() && ++outcome.failed_messages == 1) {
        outcome.first_failure = what + ", size " + std::to_string(message.size) +
                                ", offset of receive buffer " + std::to_string(message.offset) +
                                ": " + wrong;
    }
}

void send_single(const Message &message, GuardedBuffer &source, Mode mode, int peer) {
    source.prepare_source(message);
    if (mode == Mode::unexpected) {
        MPI_Request request = start_send(source, message, peer);
        send_token(peer);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        return;
    }
    if (mode == Mode::expected) {
        await_token(peer);
    }
    MPI_Send(source.address(message), static_cast<int>(message.size), MPI_BYTE, peer, kDataTag,
             MPI_COMM_WORLD);
}

MPI_Status receive_single(const Message &message, GuardedBuffer &destination, Mode mode, int peer) {
    MPI_Status status;
    destination.prepare_destination(message);
    if (mode == Mode::expected) {
        MPI_Request request = start_receive(destination, message, peer);
        send_token(peer);
        MPI_Wait(&request, &status);
        return status;
    }
    if (mode == Mode::unexpected) {
        // The message was sent before the token: when the token is here, so is the message.
        await_token(peer);
        MPI_Probe(peer, kDataTag, MPI_COMM_WORLD, &status);
    }
    MPI_Recv(destination.address(message), static_cast<int>(message.capacity), MPI_BYTE, peer,
             kDataTag, MPI_COMM_WORLD, &status);
    return status;
}

// The messages of the test of order, and their buffers on this rank.
struct Series {
    std::vector<Message> messages;
    std::vector<std::unique_ptr<GuardedBuffer>> buffers;
};

Series make_series(Session &session, const std::vector<MemoryKind> &kinds, bool is_sender) {
    constexpr size_t kCount = 48;
    const std::vector<size_t> sizes = sizes_up_to(std::min(session.max_size, kLargestOfWindow));
    Series series;
    for (size_t i = 0; i < kCount; ++i) {
        // The stride has no common factor with the number of sizes; the kinds of the receiver shift
        // against those of the sender, so that each pair of kinds occurs.
        const size_t size = sizes[i * 7 % sizes.size()];
        const size_t shift = is_sender ? 0 : i / kinds.size();
        const MemoryKind kind = kinds[(i + shift) % kinds.size()];
        series.messages.push_back(next_message(session, size, i % 4, 0));
        series.buffers.push_back(std::make_unique<GuardedBuffer>(session.driver, kind, size));
    }
    return series;
}

void send_series(const Series &series, int peer) {
    const size_t count = series.messages.size();
    std::vector<MPI_Request> requests(count);
    std::vector<MPI_Status> statuses(count);
    for (size_t i = 0; i < count; ++i) {
        series.buffers[i]->prepare_source(series.messages[i]);
    }
    await_token(peer);
    for (size_t i = 0; i < count; ++i) {
        requests[i] = start_send(*series.buffers[i], series.messages[i], peer);
    }
    send_token(peer);
    MPI_Waitall(static_cast<int>(count), requests.data(), statuses.data());
}

Outcome receive_series(const Series &series, int peer) {
    const size_t count = series.messages.size();
    std::vector<MPI_Request> requests(count);
    std::vector<MPI_Status> statuses(count);
    for (size_t i = 0; i < count; ++i) {
        series.buffers[i]->prepare_destination(series.messages[i]);
    }
    // One third of the receives is posted before the sends, the others when all are on their way.
    size_t posted = 0;
    for (; posted < count / 3; ++posted) {
        requests[posted] = start_receive(*series.buffers[posted], series.messages[posted], peer);
    }
    send_token(peer);
    await_token(peer);
    for (; posted < count; ++posted) {
        requests[posted] = start_receive(*series.buffers[posted], series.messages[posted], peer);
    }
    MPI_Waitall(static_cast<int>(count), requests.data(), statuses.data());
    Outcome outcome;
    for (size_t i = 0; i < count; ++i) {
        check(outcome, *series.buffers[i], series.messages[i], statuses[i],
              "message " + std::to_string(i) + " in " + to_string(series.buffers[i]->kind()) +
                  " memory");
    }
    return outcome;
}

struct Alignment {
    size_t source;
    size_t destination;
};

std::vector<Alignment> alignments(size_t size, bool quick) {
    if (size > kMiB || quick) {
        return {{0, 0}, {1, 3}};
    }
    return {{0, 0}, {0, 1}, {0, 3}, {1, 0}, {1, 1}, {1, 3}, {3, 0}, {3, 1}, {3, 3}};
}

}  // namespace

std::string to_string(const KindPair &pair) {
    return std::string(to_string(pair.from)) + " -> " + to_string(pair.to);
}

Outcome test_single_messages(Session &session, const KindPair &pair) {
    const size_t room = session.max_size + kSpare;
    GuardedBuffer source(session.driver, pair.from, room);
    GuardedBuffer destination(session.driver, pair.to, room);
    const int peer = 1 - session.rank;
    Outcome outcome;
    for (size_t size : sizes_up_to(session.max_size)) {
        for (const Alignment &alignment : alignments(size, session.quick)) {
            for (Mode mode : {Mode::plain, Mode::expected, Mode::unexpected}) {
                for (int sender : {0, 1}) {
                    note("%s, %s, %zu B, offsets %zu -> %zu, sender %d", to_string(pair).c_str(),
                         to_string(mode), size, alignment.source, alignment.destination, sender);
                    const size_t spare = session.counter % 3 == 0 ? kSpare : 0;
                    if (session.rank == sender) {
                        send_single(next_message(session, size, alignment.source, spare), source,
                                    mode, peer);
                    } else {
                        const Message message =
                            next_message(session, size, alignment.destination, spare);
                        const MPI_Status status = receive_single(message, destination, mode, peer);
                        check(outcome, destination, message, status, to_string(mode));
                    }
                }
            }
        }
    }
    return outcome;
}

Outcome test_windows(Session &session, const KindPair &pair) {
    using Buffers = std::vector<std::unique_ptr<GuardedBuffer>>;
    const size_t limit = std::min(session.max_size, kLargestOfWindow);
    Buffers sources;
    Buffers destinations;
    for (int i = 0; i < kWindow; ++i) {
        sources.push_back(std::make_unique<GuardedBuffer>(session.driver, pair.from, limit));
        destinations.push_back(std::make_unique<GuardedBuffer>(session.driver, pair.to, limit));
    }

    const std::vector<size_t> sizes = sizes_up_to(limit);
    const int peer = 1 - session.rank;
    Outcome outcome;
    // One window for each size and three of mixed sizes.
    for (size_t round = 0; round < sizes.size() + 3; ++round) {
        note("%s, window %zu", to_string(pair).c_str(), round);
        std::array<Message, kWindow> incoming{};
        std::array<MPI_Request, 2 * kWindow> requests;
        std::array<MPI_Status, 2 * kWindow> statuses;
        const uint64_t first = session.counter;
        session.counter += 2 * kWindow;
        for (int i = 0; i < kWindow; ++i) {
            const size_t size =
                round < sizes.size() ? sizes[round] : sizes[(round + 5 * i) % sizes.size()];
            // The counters of a window: first the messages to rank 0, then those to rank 1.
            incoming[i] = {size, 0, size, message_seed(first + session.rank * kWindow + i, size)};
            const Message outgoing{size, 0, size, message_seed(first + peer * kWindow + i, size)};
            sources[i]->prepare_source(outgoing);
            destinations[i]->prepare_destination(incoming[i]);
        }
        for (int i = 0; i < kWindow; ++i) {
            requests[i] = start_receive(*destinations[i], incoming[i], peer);
            requests[kWindow + i] = start_send(*sources[i], incoming[i], peer);
        }
        MPI_Waitall(2 * kWindow, requests.data(), statuses.data());
        for (int i = 0; i < kWindow; ++i) {
            check(outcome, *destinations[i], incoming[i], statuses[i],
                  "window " + std::to_string(round) + ", message " + std::to_string(i));
        }
    }
    return outcome;
}

Outcome test_order(Session &session, const std::vector<MemoryKind> &kinds) {
    const int peer = 1 - session.rank;
    Outcome outcome;
    for (int sender : {0, 1}) {
        note("order of messages with mixed sizes and kinds, sender %d", sender);
        const bool is_sender = session.rank == sender;
        const Series series = make_series(session, kinds, is_sender);
        if (is_sender) {
            send_series(series, peer);
        } else {
            outcome = receive_series(series, peer);
        }
    }
    return outcome;
}

}  // namespace gpushm::mpi_test
