// SPDX-License-Identifier: BSD-3-Clause
#include "test/gtest/core/transport/port_support.hpp"

#include "core/memory/memory_query.hpp"

#include <cstdlib>

namespace gpushm::test {

// ---------------------------------------------------------------- ports

TestPort::TestPort(const PortConfig &config)
    : port_(Port::create(config, {this, receive, connection_failed})) {
    if (!port_) {
        abort();
    }
}

Connection &TestPort::connection(const MailboxAddress &peer) {
    const char *why = "";
    Connection *connection = port_->connect(peer, &why);
    if (connection == nullptr) {
        fprintf(stderr, "no connection: %s\n", why);
        abort();
    }
    connection->add_user();
    return *connection;
}

void TestPort::receive(void *self, uint8_t id, void *data, size_t length) {
    auto *port = static_cast<TestPort *>(self);
    const auto *bytes = static_cast<const unsigned char *>(data);
    if (port->on_message) {
        port->on_message(id, bytes, length);
    } else {
        port->messages.push_back({id, {bytes, bytes + length}});
    }
}

void TestPort::connection_failed(void *self, Connection &connection) {
    static_cast<TestPort *>(self)->failed_connections.push_back(&connection);
}

void settle(std::initializer_list<TestPort *> ports) {
    unsigned quiet = 0;
    progress_until(ports, [&] {
        bool idle = true;
        unsigned count = 0;
        for (TestPort *port : ports) {
            count += (*port)->progress();
            idle &= (*port)->idle();
        }
        quiet = count == 0 && idle ? quiet + 1 : 0;
        return quiet > 2;
    });
}

void make_ring_ready(TestPort &from, TestPort &to) {
    unsigned char source = 1;
    unsigned char target = 0;
    const Registration registration(&target, 1);
    Outcome outcome;
    ASSERT_EQ(from.connection(to).put(&source, 1, registration.at(), nullptr, outcome.completion()),
              Status::in_progress);
    ASSERT_TRUE(progress_until({&from, &to}, [&] { return outcome.done(); }));
    ASSERT_EQ(outcome.status, Status::ok);
}

// ---------------------------------------------------------------- operations

RemoteMemory Registration::named(uint64_t offset) const {
    RemoteMemory memory = at(offset);
    memory.buffer = make_buffer_key(query_memory(reinterpret_cast<const void *>(address_)));
    return memory;
}

RemoteMemory Registration::of_program(uint64_t offset) const {
    RemoteMemory memory = named(offset);
    memory.of_program = true;
    return memory;
}

void Outcome::complete(void *self, Status status) {
    auto *outcome = static_cast<Outcome *>(self);
    ++outcome->calls;
    outcome->status = status;
}

void expect_peer_failed(const Outcome &outcome) {
    EXPECT_EQ(outcome.calls, 1u);
    EXPECT_EQ(outcome.status, Status::peer_failed);
}

// ---------------------------------------------------------------- messages

size_t PatternMessage::pack(void *destination, void *self) {
    const auto *message = static_cast<const PatternMessage *>(self);
    fill_pattern(destination, message->length, message->seed);
    return message->length;
}

std::string check_message(const Message &message, uint8_t id, size_t length, uint64_t seed) {
    if (message.id != id || message.bytes.size() != length) {
        return "message " + std::to_string(seed) + " of " + std::to_string(length) +
               " bytes came as " + std::to_string(message.bytes.size()) + " bytes, id " +
               std::to_string(message.id);
    }
    const size_t wrong = pattern_mismatch(message.bytes.data(), length, seed);
    return wrong == length ? ""
                           : "message " + std::to_string(seed) + " differs at byte " +
                                 std::to_string(wrong) + " of " + std::to_string(length);
}

}  // namespace gpushm::test
