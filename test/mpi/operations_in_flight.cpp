// SPDX-License-Identifier: BSD-3-Clause
// Many messages at once, of different types and lengths and from different buffers.
#include "operations_registry.hpp"
#include "operations_types.hpp"

#include <array>
#include <atomic>

namespace gpushm::mpi_test::operations {
namespace {

constexpr int kMessages = 12;  // each way

// Message i has tag i; the buffers of odd messages swap their roles, so that one rank has messages
// in several kinds of memory.
struct Window {
    explicit Window(Trial &trial) : group(trial.group()), exchange(trial, "12 messages each way") {
        constexpr std::array<int, 5> kCounts{1, 40, 1000, 3, 20000};
        for (int i = 0; i < kMessages; ++i) {
            const Layout &layout = *layouts[static_cast<size_t>(i) % layouts.size()];
            const int count = kCounts[static_cast<size_t>(i) % kCounts.size()];
            const bool swap = i % 2 != 0;
            out.push_back(exchange.blank(swap ? Role::destination : Role::source, layout, count));
            out.back().fill(0, exchange.sent(group.rank, layout, count, i));
            in.push_back(exchange.blank(swap ? Role::source : Role::destination, layout, count));
            in.back().expect(0, exchange.sent(trial.left(), layout, count, i));
        }
        left = trial.left();
        right = trial.right();
    }

    void start_receives() {
        for (int i = 0; i < kMessages; ++i) {
            const Items &items = in[static_cast<size_t>(i)];
            requests.push_back(MPI_REQUEST_NULL);
            exchange.require(MPI_Irecv(items.address(), items.count(), items.type(), left, i,
                                       group.comm, &requests.back()),
                             "MPI_Irecv");
        }
    }

    void start_sends() {
        for (int i = 0; i < kMessages; ++i) {
            const Items &items = out[static_cast<size_t>(i)];
            requests.push_back(MPI_REQUEST_NULL);
            exchange.require(MPI_Isend(items.address(), items.count(), items.type(), right, i,
                                       group.comm, &requests.back()),
                             "MPI_Isend");
        }
    }

    int request_count() const { return static_cast<int>(requests.size()); }

    const Group &group;
    std::vector<LayoutPtr> layouts{make_int(), make_vector(), make_struct()};
    Exchange exchange;
    int left = 0;
    int right = 0;
    std::vector<Items> out;
    std::vector<Items> in;
    std::vector<MPI_Request> requests;
};

void test_waitall(Trial &trial) {
    Window window(trial);
    window.exchange.run([&] {
        window.start_receives();
        window.start_sends();
        window.exchange.wait_all(window.requests);
    });
}

// The standard does not promise it, but programs rely on it that a short message leaves MPI_Send
// before the receive is posted.
void test_send_before_receive(Trial &trial) {
    constexpr int kCount = 250;
    const LayoutPtr layout = make_int();
    const Group &group = trial.group();
    Exchange exchange(trial, "250 ints each way");
    const Items out = exchange.source(*layout, kCount);
    Items in = exchange.destination(*layout, kCount);
    in.expect(0, exchange.sent(trial.left(), *layout, kCount));
    exchange.run([&] {
        exchange.require(
            MPI_Send(out.address(), out.count(), out.type(), trial.right(), 0, group.comm),
            "MPI_Send");
        exchange.require(MPI_Recv(in.address(), in.count(), in.type(), trial.left(), 0, group.comm,
                                  MPI_STATUS_IGNORE),
                         "MPI_Recv");
    });
}

// More messages than may be offered at a time (kOfferedMessages), from one buffer, which is written
// again as soon as MPI_Send returns. No receive is posted before all are sent.
void reuse_buffer(Trial &trial, const Layout &layout) {
    constexpr int kSends = 40;
    const int count = static_cast<int>(1000 / layout.packed_size());
    const Group &group = trial.group();
    Exchange exchange(trial, "40 messages each way of " + layout.name());
    const Items out = exchange.blank(Role::source, layout, count);
    out.fill(0, exchange.sent(group.rank, layout, count, kSends));
    out.change(0, exchange.sent(group.rank, layout, count, kSends - 1));
    std::vector<Items> next;
    std::vector<Items> in;
    for (int i = 0; i < kSends; ++i) {
        next.push_back(exchange.source(layout, count, i));
        in.push_back(exchange.destination(layout, count));
        in.back().expect(0, exchange.sent(trial.left(), layout, count, i));
    }
    exchange.run([&] {
        for (int i = 0; i < kSends; ++i) {
            const Items &from = next[static_cast<size_t>(i)];
            exchange.require(MPI_Sendrecv(from.address(), from.count(), from.type(), group.rank,
                                          kSends, out.address(), out.count(), out.type(),
                                          group.rank, kSends, group.comm, MPI_STATUS_IGNORE),
                             "MPI_Sendrecv");
            exchange.require(
                MPI_Send(out.address(), out.count(), out.type(), trial.right(), i, group.comm),
                "MPI_Send");
        }
        MPI_Barrier(group.comm);
        for (int i = 0; i < kSends; ++i) {
            const Items &to = in[static_cast<size_t>(i)];
            exchange.require(MPI_Recv(to.address(), to.count(), to.type(), trial.left(), i,
                                      group.comm, MPI_STATUS_IGNORE),
                             "MPI_Recv");
        }
    });
}

void test_reused_buffer(Trial &trial) {
    for (const LayoutPtr &layout : {make_int(), make_vector(), make_struct()}) {
        reuse_buffer(trial, *layout);
    }
}

// The number of messages that each rank has sent, in memory that all ranks of the group read.
class SentCounts {
public:
    explicit SentCounts(const Group &group) {
        MPI_Win_allocate_shared(sizeof(std::atomic<int>), 1, MPI_INFO_NULL, group.comm, &own_,
                                &window_);
        own_->store(0);
        MPI_Barrier(group.comm);
    }
    ~SentCounts() { MPI_Win_free(&window_); }
    SentCounts(const SentCounts &) = delete;
    SentCounts &operator=(const SentCounts &) = delete;

    void count() { own_->fetch_add(1); }
    // Without MPI.
    void await(int rank, int count) const {
        MPI_Aint size = 0;
        int unit = 0;
        std::atomic<int> *counter = nullptr;
        MPI_Win_shared_query(window_, rank, &size, &unit, &counter);
        while (counter->load() < count) {
        }
    }

private:
    MPI_Win window_ = MPI_WIN_NULL;
    std::atomic<int> *own_ = nullptr;
};

// A receiver may have begun to copy a message when it leaves MPI, here to wait for its sender: a
// short MPI_Send returns all the same.
void test_receiver_away(Trial &trial) {
    constexpr int kCount = 100;
    constexpr int kRounds = 60;
    const LayoutPtr layout = make_int();
    const Group &group = trial.group();
    Exchange exchange(trial, "100 ints each way, 60 times");
    const Items out = exchange.source(*layout, kCount * kRounds);
    Items in = exchange.destination(*layout, kCount * kRounds);
    in.expect(0, exchange.sent(trial.left(), *layout, kCount * kRounds));
    SentCounts sent(group);
    exchange.run([&] {
        // UCX connects two processes by what both do, so the first message needs its sender.
        exchange.require(
            MPI_Sendrecv(out.address(), kCount, out.type(), trial.right(), kRounds, in.address(),
                         kCount, in.type(), trial.left(), kRounds, group.comm, MPI_STATUS_IGNORE),
            "MPI_Sendrecv");
        MPI_Barrier(group.comm);
        for (int i = 0; i < kRounds; ++i) {
            MPI_Request request = MPI_REQUEST_NULL;
            exchange.require(MPI_Irecv(in.address(i * kCount), kCount, in.type(), trial.left(), i,
                                       group.comm, &request),
                             "MPI_Irecv");
            const auto send = [&] {
                exchange.require(MPI_Send(out.address(i * kCount), kCount, out.type(),
                                          trial.right(), i, group.comm),
                                 "MPI_Send");
                sent.count();
            };
            const bool sends_first = group.size == 1 || (group.rank + i) % 2 == 0;
            if (sends_first) {
                send();
            }
            int done = 0;
            for (int test = 0; test < i && done == 0; ++test) {
                MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            }
            sent.await(trial.left(), i + 1);
            exchange.wait(request);
            if (!sends_first) {
                send();
            }
        }
    });
}

void test_unexpected(Trial &trial) {
    Window window(trial);
    window.exchange.run([&] {
        window.start_sends();
        MPI_Barrier(window.group.comm);
        window.start_receives();
        window.exchange.wait_all(window.requests);
    });
}

void test_waitany(Trial &trial) {
    Window window(trial);
    window.exchange.run([&] {
        window.start_receives();
        window.start_sends();
        for (int i = 0; i < 2 * kMessages; ++i) {
            int index = 0;
            window.exchange.require(MPI_Waitany(window.request_count(), window.requests.data(),
                                                &index, MPI_STATUS_IGNORE),
                                    "MPI_Waitany");
        }
    });
}

void test_testsome(Trial &trial) {
    Window window(trial);
    window.exchange.run([&] {
        window.start_receives();
        window.start_sends();
        std::array<int, 2 * kMessages> indices{};
        for (int done = 0; done < 2 * kMessages;) {
            int count = 0;
            if (!window.exchange.require(
                    MPI_Testsome(window.request_count(), window.requests.data(), &count,
                                 indices.data(), MPI_STATUSES_IGNORE),
                    "MPI_Testsome")) {
                break;
            }
            done += count;
        }
    });
}

void test_persistent(Trial &trial) {
    Window window(trial);
    Exchange &exchange = window.exchange;
    for (int i = 0; i < kMessages; ++i) {
        const Items &in = window.in[static_cast<size_t>(i)];
        const Items &out = window.out[static_cast<size_t>(i)];
        MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        exchange.require(MPI_Recv_init(in.address(), in.count(), in.type(), window.left, i,
                                       window.group.comm, &requests[0]),
                         "MPI_Recv_init");
        exchange.require(MPI_Send_init(out.address(), out.count(), out.type(), window.right, i,
                                       window.group.comm, &requests[1]),
                         "MPI_Send_init");
        window.requests.insert(window.requests.end(), requests, requests + 2);
    }
    for (int start = 0; start < 3; ++start) {
        exchange.run([&] {
            exchange.require(MPI_Startall(window.request_count(), window.requests.data()),
                             "MPI_Startall");
            exchange.wait_all(window.requests);
        });
    }
    for (MPI_Request &request : window.requests) {
        MPI_Request_free(&request);
    }
}

// Messages go on when nobody waits for their requests any more.
void test_freed_requests(Trial &trial) {
    Window window(trial);
    Exchange &exchange = window.exchange;
    exchange.run([&] {
        MPI_Barrier(window.group.comm);
        window.start_sends();
        for (MPI_Request &request : window.requests) {
            exchange.require(MPI_Request_free(&request), "MPI_Request_free");
        }
        window.requests.clear();
        window.start_receives();
        exchange.wait_all(window.requests);
        // All have received: nobody's buffers are read any more.
        MPI_Barrier(window.group.comm);
    });
}

}  // namespace

void add_messages_in_flight(Registry &registry) {
    registry.add("Send before Recv, a short one", test_send_before_receive);
    registry.add("Send from a buffer that is written again at once", test_reused_buffer);
    registry.add("Send to a receiver that has left MPI", test_receiver_away);
    registry.add("Isend/Irecv, 12 in flight, Waitall", test_waitall);
    registry.add("Isend/Irecv, 12 in flight, unexpected", test_unexpected);
    registry.add("Isend/Irecv, 12 in flight, Waitany", test_waitany);
    registry.add("Isend/Irecv, 12 in flight, Testsome", test_testsome);
    registry.add("Isend and Request_free, 12 in flight", test_freed_requests);
    registry.add("Send_init/Recv_init, 12 in flight, Startall", test_persistent);
}

}  // namespace gpushm::mpi_test::operations
