// SPDX-License-Identifier: BSD-3-Clause
// A second process with GPU memory and a port, which does what the test tells it by active
// messages. Both
// processes are made anew, because a child that is forked after cuInit cannot use the driver.
#pragma once

#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/core/transport/port_support.hpp"

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace gpushm::test {

/** The other process. Made before this one initialises CUDA. It has one buffer, which is
 * registered. */
class Peer {
public:
    Peer(const PortConfig &config, CUdevice device);

    /** Connects it with a port of this process; false when it is gone. */
    bool connect(TestPort &port);
    Connection &connection() { return port_->connection(mailbox_); }
    uint64_t owner() const { return owner_; }  // BufferKey::owner of its memory

    // Each waits until it is done, and progresses the port meanwhile.
    RemoteMemory allocate(size_t length, Buffer::Allocator allocator = Buffer::Allocator::device);
    /** How often allocate() gave memory at the address of the one before. */
    unsigned same_addresses() const { return same_addresses_; }
    void release();
    void fill(uint64_t seed);
    bool holds(uint64_t seed);
    /** It reads or writes memory of this process with its buffer. */
    Status get(const RemoteMemory &remote, size_t length);
    Status put(const RemoteMemory &remote, size_t length);
    /** As put(), in two parts. */
    void begin_put(const RemoteMemory &remote, size_t length);
    Status end_put();
    /** It begins a put and deregisters its own memory; how many lines of its log say that a copy is
     * not ended. */
    void begin_put_and_deregister(const RemoteMemory &remote, size_t length);
    uint64_t end_put_and_deregister();
    /** As get() of host memory of this process; the message that asks for it announces the memory,
     * so that there may be a speculative copy: its number, 0 for none. */
    Status get_announced(const RemoteMemory &remote, size_t length, uint64_t *speculative_copy);
    unsigned long calls(const char *function);
    /** All but those of `function`, counted at one moment. */
    unsigned long calls_besides(const char *function);
    void reset_calls();
    void simulate(const char *variable, const char *value);
    void enable_pins(size_t limit);
    /** Its context is in use by the application (note_context_in_use()). */
    void note_context();
    /** test::use_gpu(). */
    void use_gpu();
    /** Its program launches a kernel. */
    void launch();
    /** gpushm's kernels, into its context; false where that cannot be. */
    bool load_kernels();
    void close_port();
    /** It does nothing any more, as if in a long computation, and is not to be asked again. */
    void sleep();

    void kill() { child_.kill_hard(); }
    int finish();

private:
    enum class Operation : uint64_t;
    struct Command;
    struct Announcement;
    struct Answer;
    class Service;

    Answer ask(Operation operation, uint64_t number = 0, const std::string &text = "");
    void command(Operation operation, uint64_t number, const std::string &text);
    Answer await_answer();

    Child child_;
    TestPort *port_ = nullptr;
    MailboxAddress mailbox_ = {};
    uint64_t owner_ = 0;
    uint64_t last_address_ = 0;
    unsigned same_addresses_ = 0;
};

/** Starts an operation of this process and waits for its end. */
Status await_get(TestPort &port, Connection &connection, void *local, size_t length,
                 const RemoteMemory &remote);
Status await_put(TestPort &port, Connection &connection, const void *local, size_t length,
                 const RemoteMemory &remote);

/** This process on device 0 and another one. */
struct Pair {
    explicit Pair(CUdevice peer_device, const PortConfig &config = kMappingPort)
        : peer(config, peer_device) {}
    /** After the fork. */
    bool start(const PortConfig &config = kMappingPort) {
        if (!enter_primary_context(0)) {
            return false;
        }
        port.emplace(config);
        return peer.connect(*port);
    }
    Status get(void *local, size_t length, const RemoteMemory &remote) {
        return await_get(*port, peer.connection(), local, length, remote);
    }
    Status put(const void *local, size_t length, const RemoteMemory &remote) {
        return await_put(*port, peer.connection(), local, length, remote);
    }
    /** Progresses until this process has called a function so often; false when it does not. */
    bool await_calls(const char *function, unsigned long count) {
        return progress_until({&*port}, [&] { return calls(function) >= count; });
    }

    /** Whether this process copies for both on one GPU where nobody else uses it. */
    bool precedes() { return process_cookie().low < peer.owner(); }
    static constexpr int kPrecedes = 43;
    /** The status of a test process: as the peer's, but kPrecedes if that is 0 and precedes(). */
    int finish_by_order();

    // Copies by the driver since the last reset_calls().
    static unsigned long own_copies() { return calls("cuMemcpyAsync") + calls("cuMemcpy2DAsync"); }
    unsigned long peer_copies() {
        return peer.calls("cuMemcpyAsync") + peer.calls("cuMemcpy2DAsync");
    }

    Peer peer;
    std::optional<TestPort> port;
};

/** Runs a process, which ends by finish_by_order(), until each of the pair was the one that
 * precedes: either may have the lower cookie. */
void run_in_both_orders(FreshProcess &process);

/** As an application that launches a kernel on device 0. */
void launch_as_program();

/** As an application whose messages have met GPU memory in the current context. */
void use_gpu();

/** Messages of the patterns from `first` on, each from the memory of the peer to here; 0 if all
 * arrive. */
int get_patterns(Pair &pair, Buffer &local, size_t length, const RemoteMemory &remote,
                 uint64_t first, uint64_t count);

}  // namespace gpushm::test
