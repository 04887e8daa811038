// SPDX-License-Identifier: BSD-3-Clause
// Messages around a ring: each rank sends to its right neighbour and receives from its left one.
#include "operations_counts.hpp"
#include "operations_mpi_version.hpp"
#include "operations_registry.hpp"
#include "operations_types.hpp"

namespace gpushm::mpi_test::operations {
namespace {

constexpr int kTag = 5;
constexpr int kReadyTag = 6;
// How often persistent requests are started. A second start of a buffered send sends wrong data in
// Open MPI before 5.0.12 and 4.1.9 with pml/ob1 (github.com/open-mpi/ompi, 12797 and 14366).
constexpr int kStarts = 2;
constexpr int kStartsOfBuffered = 1;

using BlockingSend = int (*)(const void *, int, MPI_Datatype, int, int, MPI_Comm);
using StartSend = int (*)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

// The memory of MPI for buffered messages.
class BufferSpace {
public:
    BufferSpace() : memory_(size_t{8} << 20) {
        MPI_Buffer_attach(memory_.data(), static_cast<int>(memory_.size()));
    }
    ~BufferSpace() {
        void *memory;
        int size;
        MPI_Buffer_detach(&memory, &size);
    }
    BufferSpace(const BufferSpace &) = delete;
    BufferSpace &operator=(const BufferSpace &) = delete;

private:
    std::vector<unsigned char> memory_;
};

// One message in and one out. There is room for one item more than comes.
struct Ring {
    Ring(Trial &trial, const TypePair &types, int units)
        : group(trial.group()),
          left(trial.left()),
          right(trial.right()),
          exchange(trial, text("count %d", units * types.send_unit)),
          expected(units * types.receive_unit),
          out(exchange.source(*types.send, units * types.send_unit)),
          in(exchange.destination(*types.receive, expected + 1)) {
        in.expect(0, exchange.sent(left, *types.send, out.count()));
    }

    int send(BlockingSend call) const {
        return call(out.address(), out.count(), out.type(), right, kTag, group.comm);
    }

    int start(StartSend call, MPI_Request *request) const {
        return call(out.address(), out.count(), out.type(), right, kTag, group.comm, request);
    }

    void receive() {
        MPI_Status status{};
        if (exchange.require(
                MPI_Recv(in.address(), in.count(), in.type(), left, kTag, group.comm, &status),
                "MPI_Recv")) {
            check(status);
        }
    }

    void start_receive(MPI_Request *request) {
        exchange.require(
            MPI_Irecv(in.address(), in.count(), in.type(), left, kTag, group.comm, request),
            "MPI_Irecv");
    }

    void finish_receive(MPI_Request &request) {
        MPI_Status status{};
        if (exchange.require(MPI_Wait(&request, &status), "MPI_Wait of the receive")) {
            check(status);
        }
    }

    void check(const MPI_Status &status) {
        exchange.check_status(status, left, kTag, in.type(), expected);
    }

    // Tells the sender that the receive is posted, and waits to hear the same from the receiver.
    void tell_ready() {
        exchange.require(MPI_Sendrecv(nullptr, 0, MPI_INT, left, kReadyTag, nullptr, 0, MPI_INT,
                                      right, kReadyTag, group.comm, MPI_STATUS_IGNORE),
                         "MPI_Sendrecv");
    }

    const Group &group;
    int left;
    int right;
    Exchange exchange;
    int expected;
    Items out;
    Items in;
};

using RingTest = std::function<void(Ring &)>;

void add(Registry &registry, const std::string &name, const std::vector<TypePair> &list,
         const RingTest &test) {
    for (const TypePair &types : list) {
        registry.add(name + ", " + types.name, [types, test](Trial &trial) {
            for (int units : unit_counts(trial, types, large_if_ints(types))) {
                Ring ring(trial, types, units);
                test(ring);
            }
        });
    }
}

// Even ranks send first; a ring of one has nobody to send to in the meantime.
void test_blocking(Ring &ring, BlockingSend call, const char *name) {
    ring.exchange.run([&] {
        if (ring.group.size == 1) {
            MPI_Request request = MPI_REQUEST_NULL;
            ring.start_receive(&request);
            ring.exchange.require(ring.send(call), name);
            ring.finish_receive(request);
        } else if (ring.group.rank % 2 == 0) {
            ring.exchange.require(ring.send(call), name);
            ring.receive();
        } else {
            ring.receive();
            ring.exchange.require(ring.send(call), name);
        }
    });
}

void test_ready(Ring &ring) {
    ring.exchange.run([&] {
        MPI_Request request = MPI_REQUEST_NULL;
        ring.start_receive(&request);
        ring.tell_ready();
        ring.exchange.require(ring.send(MPI_Rsend), "MPI_Rsend");
        ring.finish_receive(request);
    });
}

void test_nonblocking(Ring &ring, StartSend call, const char *name) {
    ring.exchange.run([&] {
        MPI_Request receive = MPI_REQUEST_NULL;
        MPI_Request send = MPI_REQUEST_NULL;
        ring.start_receive(&receive);
        ring.tell_ready();  // for MPI_Irsend, and does the others no harm
        ring.exchange.require(ring.start(call, &send), name);
        ring.finish_receive(receive);
        ring.exchange.wait(send);
    });
}

void test_persistent(Ring &ring, StartSend init, const char *name, int starts = kStarts) {
    MPI_Request receive = MPI_REQUEST_NULL;
    MPI_Request send = MPI_REQUEST_NULL;
    ring.exchange.require(MPI_Recv_init(ring.in.address(), ring.in.count(), ring.in.type(),
                                        ring.left, kTag, ring.group.comm, &receive),
                          "MPI_Recv_init");
    ring.exchange.require(ring.start(init, &send), name);
    for (int start = 0; start < starts; ++start) {
        ring.exchange.run([&] {
            ring.exchange.require(MPI_Start(&receive), "MPI_Start");
            ring.tell_ready();
            ring.exchange.require(MPI_Startall(1, &send), "MPI_Startall");
            ring.finish_receive(receive);
            ring.exchange.wait(send);
        });
    }
    MPI_Request_free(&receive);
    MPI_Request_free(&send);
}

// Starts a send and receives by `receive`.
void test_receive(Ring &ring, const std::function<void()> &receive) {
    ring.exchange.run([&] {
        MPI_Request send = MPI_REQUEST_NULL;
        ring.exchange.require(ring.start(MPI_Isend, &send), "MPI_Isend");
        receive();
        ring.exchange.wait(send);
    });
}

// The message is there before the receive is posted.
void test_unexpected(Ring &ring) {
    test_receive(ring, [&] {
        ring.tell_ready();
        MPI_Status status{};
        ring.exchange.require(MPI_Probe(ring.left, kTag, ring.group.comm, &status), "MPI_Probe");
        ring.check(status);
        ring.receive();
    });
}

void test_any_source(Ring &ring) {
    test_receive(ring, [&] {
        MPI_Status status{};
        ring.exchange.require(MPI_Recv(ring.in.address(), ring.in.count(), ring.in.type(),
                                       MPI_ANY_SOURCE, MPI_ANY_TAG, ring.group.comm, &status),
                              "MPI_Recv");
        ring.check(status);
    });
}

void test_mrecv(Ring &ring) {
    test_receive(ring, [&] {
        MPI_Message message;
        MPI_Status status{};
        ring.exchange.require(MPI_Mprobe(ring.left, kTag, ring.group.comm, &message, &status),
                              "MPI_Mprobe");
        ring.check(status);
        ring.exchange.require(
            MPI_Mrecv(ring.in.address(), ring.in.count(), ring.in.type(), &message, &status),
            "MPI_Mrecv");
        ring.check(status);
    });
}

void test_imrecv(Ring &ring) {
    test_receive(ring, [&] {
        MPI_Message message;
        MPI_Request request = MPI_REQUEST_NULL;
        for (int found = 0; found == 0;) {
            ring.exchange.require(
                MPI_Improbe(ring.left, kTag, ring.group.comm, &found, &message, MPI_STATUS_IGNORE),
                "MPI_Improbe");
        }
        ring.exchange.require(
            MPI_Imrecv(ring.in.address(), ring.in.count(), ring.in.type(), &message, &request),
            "MPI_Imrecv");
        ring.finish_receive(request);
    });
}

void test_sendrecv(Ring &ring) {
    ring.exchange.run([&] {
        MPI_Status status{};
        ring.exchange.require(
            MPI_Sendrecv(ring.out.address(), ring.out.count(), ring.out.type(), ring.right, kTag,
                         ring.in.address(), ring.in.count(), ring.in.type(), ring.left, kTag,
                         ring.group.comm, &status),
            "MPI_Sendrecv");
        ring.check(status);
    });
}

#if GPUSHM_TEST_MPI4
void test_isendrecv(Ring &ring) {
    ring.exchange.run([&] {
        MPI_Request request = MPI_REQUEST_NULL;
        ring.exchange.require(
            MPI_Isendrecv(ring.out.address(), ring.out.count(), ring.out.type(), ring.right, kTag,
                          ring.in.address(), ring.in.count(), ring.in.type(), ring.left, kTag,
                          ring.group.comm, &request),
            "MPI_Isendrecv");
        ring.exchange.wait(request);
    });
}
#endif

// Nothing comes from nobody, and nothing may be written.
void test_nobody(Trial &trial, const TypePair &types) {
    Exchange exchange(trial, "count 100");
    const Items out = exchange.source(*types.send, 100);
    const Items in = exchange.destination(*types.receive, 100);
    exchange.run([&] {
        MPI_Status status{};
        exchange.require(
            MPI_Sendrecv(out.address(), out.count(), out.type(), MPI_PROC_NULL, kTag, in.address(),
                         in.count(), in.type(), MPI_PROC_NULL, kTag, trial.group().comm, &status),
            "MPI_Sendrecv");
        exchange.check_status(status, MPI_PROC_NULL, MPI_ANY_TAG, in.type(), 0);
    });
}

void test_empty_message(Trial &trial, const TypePair &types) {
    Exchange exchange(trial, "count 0");
    const Items out = exchange.source(*types.send, 1);
    const Items in = exchange.destination(*types.receive, 1);
    exchange.run([&] {
        MPI_Status status{};
        exchange.require(
            MPI_Sendrecv(out.address(), 0, out.type(), trial.right(), kTag, in.address(),
                         in.count(), in.type(), trial.left(), kTag, trial.group().comm, &status),
            "MPI_Sendrecv");
        exchange.check_status(status, trial.left(), kTag, in.type(), 0);
    });
}

// A receive that is cancelled writes nothing.
void test_cancelled(Trial &trial, const TypePair &types) {
    for (int count : {100, 30000}) {
        Exchange exchange(trial, text("count %d", count));
        const Items in = exchange.destination(*types.receive, count);
        exchange.run([&] {
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_Status status{};
            int cancelled = 0;
            exchange.require(MPI_Irecv(in.address(), in.count(), in.type(), trial.left(), kTag,
                                       trial.group().comm, &request),
                             "MPI_Irecv");
            exchange.require(MPI_Cancel(&request), "MPI_Cancel");
            exchange.require(MPI_Wait(&request, &status), "MPI_Wait");
            MPI_Test_cancelled(&status, &cancelled);
            if (cancelled == 0) {
                exchange.fail("the receive was not cancelled");
            }
        });
    }
}

// What comes from the left replaces what went to the right. The count of both is the same, but not
// necessarily the type map.
void test_replace(Trial &trial, const TypePair &types,
                  const std::function<void(Exchange &, const Items &)> &replace) {
    for (int units : unit_counts(trial, types, large_if_ints(types))) {
        Exchange exchange(trial, text("count %d", units));
        const Items items = exchange.in_out(*types.send, units);
        items.change(0, exchange.sent(trial.left(), *types.send, units));
        exchange.run([&] { replace(exchange, items); });
    }
}

#if GPUSHM_TEST_MPI4
void add_isendrecv(Registry &registry) {
    add(registry, "Isendrecv", few_types(), test_isendrecv);
    for (const TypePair &types : few_types()) {
        registry.add("Isendrecv_replace, " + types.name, [types](Trial &trial) {
            test_replace(trial, types, [&](Exchange &exchange, const Items &items) {
                MPI_Request request = MPI_REQUEST_NULL;
                exchange.require(MPI_Isendrecv_replace(items.address(), items.count(), items.type(),
                                                       trial.right(), kTag, trial.left(), kTag,
                                                       trial.group().comm, &request),
                                 "MPI_Isendrecv_replace");
                exchange.wait(request);
            });
        });
    }
}
#else
void add_isendrecv(Registry &) {}
#endif

void add_replace(Registry &registry) {
    for (const TypePair &types : all_types()) {
        if (types.send != types.receive) {
            continue;
        }
        registry.add("Sendrecv_replace, " + types.name, [types](Trial &trial) {
            test_replace(trial, types, [&](Exchange &exchange, const Items &items) {
                MPI_Status status{};
                exchange.require(MPI_Sendrecv_replace(items.address(), items.count(), items.type(),
                                                      trial.right(), kTag, trial.left(), kTag,
                                                      trial.group().comm, &status),
                                 "MPI_Sendrecv_replace");
                exchange.check_status(status, trial.left(), kTag, items.type(), items.count());
            });
        });
    }
}

// A type with many blocks, above all thresholds.
void add_large_vectors(Registry &registry) {
    const TypePair types = same_type(make_vector());
    const auto add_large = [&](const char *name, const RingTest &test) {
        registry.add(std::string(name) + ", large vector", [types, test](Trial &trial) {
            Ring ring(trial, types, 16666);
            test(ring);
        });
    };
    add_large("Send/Recv", [](Ring &ring) { test_blocking(ring, MPI_Send, "MPI_Send"); });
    add_large("Isend/Irecv", [](Ring &ring) { test_nonblocking(ring, MPI_Isend, "MPI_Isend"); });
    add_large("Isend/Recv, unexpected", test_unexpected);
}

void add_blocking(Registry &registry) {
    add(registry, "Send/Recv", all_types(),
        [](Ring &ring) { test_blocking(ring, MPI_Send, "MPI_Send"); });
    add(registry, "Ssend/Recv", few_types(),
        [](Ring &ring) { test_blocking(ring, MPI_Ssend, "MPI_Ssend"); });
    add(registry, "Bsend/Recv", few_types(), [](Ring &ring) {
        const BufferSpace space;
        test_blocking(ring, MPI_Bsend, "MPI_Bsend");
    });
    add(registry, "Rsend/Irecv", few_types(), test_ready);
    add(registry, "Sendrecv", few_types(), test_sendrecv);
}

void add_nonblocking(Registry &registry) {
    add(registry, "Isend/Irecv", all_types(),
        [](Ring &ring) { test_nonblocking(ring, MPI_Isend, "MPI_Isend"); });
    add(registry, "Issend/Irecv", few_types(),
        [](Ring &ring) { test_nonblocking(ring, MPI_Issend, "MPI_Issend"); });
    add(registry, "Irsend/Irecv", few_types(),
        [](Ring &ring) { test_nonblocking(ring, MPI_Irsend, "MPI_Irsend"); });
    add(registry, "Ibsend/Irecv", few_types(), [](Ring &ring) {
        const BufferSpace space;
        test_nonblocking(ring, MPI_Ibsend, "MPI_Ibsend");
    });
    add(registry, "Isend/Recv, unexpected", all_types(), test_unexpected);
    add(registry, "Isend/Recv, any source and tag", few_types(), test_any_source);
    add(registry, "Isend/Mprobe and Mrecv", few_types(), test_mrecv);
    add(registry, "Isend/Improbe and Imrecv", few_types(), test_imrecv);
}

void add_persistent(Registry &registry) {
    add(registry, "Send_init/Recv_init", few_types(),
        [](Ring &ring) { test_persistent(ring, MPI_Send_init, "MPI_Send_init"); });
    add(registry, "Ssend_init/Recv_init", few_types(),
        [](Ring &ring) { test_persistent(ring, MPI_Ssend_init, "MPI_Ssend_init"); });
    add(registry, "Rsend_init/Recv_init", few_types(),
        [](Ring &ring) { test_persistent(ring, MPI_Rsend_init, "MPI_Rsend_init"); });
    add(registry, "Bsend_init/Recv_init", few_types(), [](Ring &ring) {
        const BufferSpace space;
        test_persistent(ring, MPI_Bsend_init, "MPI_Bsend_init", kStartsOfBuffered);
    });
}

void add_special(Registry &registry) {
    for (const TypePair &types : few_types()) {
        registry.add("Sendrecv with MPI_PROC_NULL, " + types.name,
                     [types](Trial &trial) { test_nobody(trial, types); });
        registry.add("Sendrecv of nothing, " + types.name,
                     [types](Trial &trial) { test_empty_message(trial, types); });
        registry.add("Irecv and Cancel, " + types.name,
                     [types](Trial &trial) { test_cancelled(trial, types); });
        registry.add("Send/Recv to self, " + types.name, registry.self(), [types](Trial &trial) {
            for (int units : unit_counts(trial, types, large_if_ints(types))) {
                Ring ring(trial, types, units);
                test_blocking(ring, MPI_Send, "MPI_Send");
            }
        });
        registry.add("Sendrecv to self, " + types.name, registry.self(), [types](Trial &trial) {
            for (int units : unit_counts(trial, types, large_if_ints(types))) {
                Ring ring(trial, types, units);
                test_sendrecv(ring);
            }
        });
    }
}

}  // namespace

void add_point_to_point(Registry &registry) {
    add_blocking(registry);
    add_nonblocking(registry);
    add_large_vectors(registry);
    add_persistent(registry);
    add_replace(registry);
    add_isendrecv(registry);
    add_special(registry);
}

}  // namespace gpushm::mpi_test::operations
