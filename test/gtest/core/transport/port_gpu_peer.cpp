// SPDX-License-Identifier: BSD-3-Clause
#include "test/gtest/core/transport/port_gpu_peer.hpp"

#include "core/cuda/driver_watch.hpp"
#include "core/pinning/host_registration_cache.hpp"
#include "core/reclaim/context_in_use.hpp"
#include "core/standby/gpu_sharing.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

namespace gpushm::test {
namespace {

constexpr uint8_t kCommandId = 30;
constexpr uint8_t kAnswerId = 31;

// What of remote memory a message has room for: all but rows.
constexpr size_t kRemoteBytes = offsetof(RemoteMemory, rows);

std::string bytes_of(const RemoteMemory &memory) {
    return std::string(reinterpret_cast<const char *>(&memory), kRemoteBytes);
}

}  // namespace

// ---------------------------------------------------------------- the other process

enum class Peer::Operation : uint64_t {
    allocate = 1,
    release,
    fill,
    holds,
    get,
    put,
    put_and_deregister,
    calls,
    calls_besides,
    reset_calls,
    simulate,
    enable_pins,
    note_context,
    use_gpu,
    launch,
    load_kernels,
    close_port,
    sleep,
    finish
};

/** As the payload of an am_short; the operation is its header. */
struct Peer::Command {
    uint64_t number = 0;
    char text[80] = {};  // or a RemoteMemory
    RemoteMemory remote() const {
        RemoteMemory memory;
        static_assert(kRemoteBytes <= sizeof(text));
        memcpy(static_cast<void *>(&memory), text, kRemoteBytes);
        return memory;
    }
};

struct Peer::Answer {
    uint64_t value = 0;
    RemoteMemory memory = {};
};

/** What runs there. */
class Peer::Service {
public:
    explicit Service(const PortConfig &config) : port_(config) {}

    int run(const Channel &channel) {
        MailboxAddress other;
        channel.send(port_->address());
        channel.send(process_cookie().low);
        CHECK(channel.receive(&other));
        connection_ = &port_.connection(other);
        for (;;) {
            // Without an end: who waits for a command must outlive slow tests.
            while (port_.messages.empty()) {
                if (port_->progress() == 0) {
                    std::this_thread::yield();
                }
            }
            const Message message = std::move(port_.messages.front());
            port_.messages.pop_front();
            CHECK(message.id == kCommandId && message.bytes.size() == 8 + sizeof(Command));
            Operation operation;
            Command command;
            memcpy(&operation, message.bytes.data(), sizeof(operation));
            memcpy(&command, message.bytes.data() + sizeof(operation), sizeof(command));
            const Answer answer = obey(operation, command);
            CHECK(send_when_possible(port_, port_, [&] {
                      return connection_->am_short(kAnswerId, answer.value, &answer.memory,
                                                   kRemoteBytes);
                  }) == Status::ok);
            if (operation == Operation::close_port) {
                port_.destroy();
            }
            if (operation == Operation::sleep || operation == Operation::close_port) {
                pause();
            }
            if (operation == Operation::finish) {
                settle({&port_});
                return 0;
            }
        }
    }

private:
    Answer obey(Operation operation, const Command &command) {
        switch (operation) {
            case Operation::allocate:
                length_ = command.number;
                buffer_.emplace(static_cast<Buffer::Allocator>(command.text[0]), length_);
                registration_.emplace(buffer_->data(), length_);
                return {1, registration_->named()};
            case Operation::release:
                registration_.reset();
                buffer_.reset();
                return {};
            case Operation::fill:
                buffer_->fill(command.number);
                return {};
            case Operation::holds:
                return {buffer_->check(0, length_, command.number, 0).empty(), {}};
            case Operation::get:
                return {static_cast<uint64_t>(await_get(port_, *connection_, buffer_->data(),
                                                        command.number, command.remote())),
                        {}};
            case Operation::put:
                return {static_cast<uint64_t>(await_put(port_, *connection_, buffer_->data(),
                                                        command.number, command.remote())),
                        {}};
            case Operation::put_and_deregister:
                return {put_and_deregister(command), {}};
            case Operation::calls:
                return {test::calls(command.text), {}};
            case Operation::calls_besides:
                return {test::calls_of_all() - test::calls(command.text), {}};
            case Operation::reset_calls:
                test::reset_calls();
                return {};
            case Operation::simulate: {
                const std::string text = command.text;
                const size_t equals = text.find('=');
                set_simulation(text.substr(0, equals).c_str(), text.substr(equals + 1).c_str());
                return {};
            }
            case Operation::note_context:
                note_context_in_use(current_context());
                return {};
            case Operation::use_gpu:
                test::use_gpu();
                return {};
            case Operation::launch:
                launch_as_program();
                return {};
            case Operation::load_kernels:
                return {test::load_kernels(current_context()) ? 1u : 0u, {}};
            case Operation::enable_pins:
                HostRegistrationCache::instance().enable(command.number);
                return {};
            default:
                return {};
        }
    }

    /** How many lines say that somebody does not end a copy. */
    uint64_t put_and_deregister(const Command &command) {
        Outcome outcome;
        connection_->put(buffer_->data(), command.number, command.remote(), nullptr,
                         outcome.completion());
        registration_->end();
        const uint64_t lines = log_.count("does not end a copy");
        progress_until({&port_}, [&] { return outcome.done(); });
        return lines;
    }

    LogCapture log_;  // errors that a test provokes are not to be read
    TestPort port_;
    Connection *connection_ = nullptr;
    std::optional<Buffer> buffer_;
    size_t length_ = 0;
    std::optional<Registration> registration_;
};

Peer::Peer(const PortConfig &config, CUdevice device)
    : child_([&](const Channel &channel) {
          CHECK(enter_primary_context(device));
          Service service(config);
          return service.run(channel);
      }) {}

bool Peer::connect(TestPort &port) {
    port_ = &port;
    if (!child_.channel().receive(&mailbox_) || !child_.channel().receive(&owner_)) {
        return false;
    }
    child_.channel().send(port->address());
    return true;
}

void Peer::command(Operation operation, uint64_t number, const std::string &text) {
    Command command;
    command.number = number;
    memcpy(command.text, text.data(), std::min(text.size(), sizeof(command.text) - 1));
    send_when_possible(*port_, *port_, [&] {
        return connection().am_short(kCommandId, static_cast<uint64_t>(operation), &command,
                                     sizeof(command));
    });
}

Peer::Answer Peer::ask(Operation operation, uint64_t number, const std::string &text) {
    command(operation, number, text);
    return await_answer();
}

Peer::Answer Peer::await_answer() {
    Answer answer;
    if (!progress_until({port_}, [&] { return !port_->messages.empty(); })) {
        ADD_FAILURE() << "the peer does not answer";
        return answer;
    }
    const Message &message = port_->messages.front();
    memcpy(&answer.value, message.bytes.data(), sizeof(answer.value));
    memcpy(static_cast<void *>(&answer.memory), message.bytes.data() + sizeof(answer.value),
           kRemoteBytes);
    port_->messages.pop_front();
    return answer;
}

RemoteMemory Peer::allocate(size_t length, Buffer::Allocator allocator) {
    const RemoteMemory memory =
        ask(Operation::allocate, length, std::string(1, static_cast<char>(allocator))).memory;
    same_addresses_ += memory.address == std::exchange(last_address_, memory.address) ? 1 : 0;
    return memory;
}

void Peer::release() {
    ask(Operation::release);
}
void Peer::fill(uint64_t seed) {
    ask(Operation::fill, seed);
}
bool Peer::holds(uint64_t seed) {
    return ask(Operation::holds, seed).value != 0;
}

Status Peer::get(const RemoteMemory &remote, size_t length) {
    return static_cast<Status>(ask(Operation::get, length, bytes_of(remote)).value);
}

/** The command that asks for memory of its sender, with the speculative copy that this memory gets.
 */
struct Peer::Announcement {
    RemoteMemory memory;
    size_t length;

    static size_t pack(void *destination, void *argument) {
        auto *self = static_cast<Announcement *>(argument);
        MessageSender *sender = MessageSender::packing();
        const auto *address = reinterpret_cast<const void *>(self->memory.address);
        self->memory.speculative_copy =
            sender != nullptr ? sender->plan_speculative_copy(address, self->length, false) : 0;
        const Operation operation = Operation::get;
        Command command;
        command.number = self->length;
        memcpy(command.text, &self->memory, kRemoteBytes);
        memcpy(destination, &operation, sizeof(operation));
        memcpy(static_cast<unsigned char *>(destination) + sizeof(operation), &command,
               sizeof(command));
        return sizeof(operation) + sizeof(command);
    }
};

Status Peer::get_announced(const RemoteMemory &remote, size_t length, uint64_t *speculative_copy) {
    Announcement announcement = {remote, length};
    send_when_possible(*port_, *port_, [&] {
        size_t packed = 0;
        return connection().am_pack(kCommandId, Announcement::pack, &announcement, &packed);
    });
    *speculative_copy = announcement.memory.speculative_copy;
    return static_cast<Status>(await_answer().value);
}

Status Peer::put(const RemoteMemory &remote, size_t length) {
    return static_cast<Status>(ask(Operation::put, length, bytes_of(remote)).value);
}

void Peer::begin_put(const RemoteMemory &remote, size_t length) {
    command(Operation::put, length, bytes_of(remote));
}

void Peer::begin_put_and_deregister(const RemoteMemory &remote, size_t length) {
    command(Operation::put_and_deregister, length, bytes_of(remote));
}

uint64_t Peer::end_put_and_deregister() {
    return await_answer().value;
}

Status Peer::end_put() {
    return static_cast<Status>(await_answer().value);
}

unsigned long Peer::calls(const char *function) {
    return ask(Operation::calls, 0, function).value;
}

unsigned long Peer::calls_besides(const char *function) {
    return ask(Operation::calls_besides, 0, function).value;
}

void Peer::reset_calls() {
    ask(Operation::reset_calls);
}

void Peer::simulate(const char *variable, const char *value) {
    ask(Operation::simulate, 0, std::string(variable) + "=" + value);
}

void Peer::enable_pins(size_t limit) {
    ask(Operation::enable_pins, limit);
}
void Peer::note_context() {
    ask(Operation::note_context);
}
void Peer::use_gpu() {
    ask(Operation::use_gpu);
}
void Peer::launch() {
    ask(Operation::launch);
}
bool Peer::load_kernels() {
    return ask(Operation::load_kernels).value != 0;
}
void Peer::close_port() {
    ask(Operation::close_port);
}
void Peer::sleep() {
    ask(Operation::sleep);
}

int Peer::finish() {
    ask(Operation::finish);
    return child_.reap();
}

// ---------------------------------------------------------------- operations

Status await_get(TestPort &port, Connection &connection, void *local, size_t length,
                 const RemoteMemory &remote) {
    Outcome outcome;
    const Status status = connection.get(local, length, remote, nullptr, outcome.completion());
    if (status != Status::in_progress) {
        return status;
    }
    if (!progress_until({&port}, [&] { return outcome.done(); })) {
        connection.cancel(nullptr);  // a fault; nothing may come when the outcome is gone
    }
    return outcome.status;
}

Status await_put(TestPort &port, Connection &connection, const void *local, size_t length,
                 const RemoteMemory &remote) {
    Outcome outcome;
    const Status status = connection.put(local, length, remote, nullptr, outcome.completion());
    if (status != Status::in_progress) {
        return status;
    }
    if (!progress_until({&port}, [&] { return outcome.done(); })) {
        connection.cancel(nullptr);
    }
    return outcome.status;
}

int Pair::finish_by_order() {
    const bool is_first = precedes();
    const int status = peer.finish();
    return status == 0 && is_first ? kPrecedes : status;
}

void run_in_both_orders(FreshProcess &process) {
    bool seen[2] = {false, false};
    for (int i = 0; i < 40 && !(seen[0] && seen[1]); ++i) {
        const int status = process.run();
        ASSERT_TRUE(status == 0 || status == Pair::kPrecedes) << status;
        seen[status == 0 ? 0 : 1] = true;
    }
    EXPECT_TRUE(seen[0] && seen[1]) << "the same process precedes each time";
}

void launch_as_program() {
    GpuSharing::instance().use(0);
    DriverWatch::instance().note_launch();
}

void use_gpu() {
    note_context_in_use(current_context());
    const Buffer buffer(MemoryKind::device, 64);
    query_memory(buffer.data());
}

int get_patterns(Pair &pair, Buffer &local, size_t length, const RemoteMemory &remote,
                 uint64_t first, uint64_t count) {
    for (uint64_t pattern = first; pattern < first + count; ++pattern) {
        pair.peer.fill(pattern);
        CHECK(pair.get(local.data(), length, remote) == Status::ok);
        CHECK(local.check(0, length, pattern, 0).empty());
    }
    return 0;
}

}  // namespace gpushm::test
