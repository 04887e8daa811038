// SPDX-License-Identifier: BSD-3-Clause
// What the tests of ports and connections share: ports that keep what they receive, ends of
// operations.
#pragma once

#include "core/memory/registration_table.hpp"
#include "core/transport/connection.hpp"
#include "core/transport/port.hpp"

#include "test/gtest/core/support.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <thread>
#include <vector>

namespace gpushm::test {

/** Built with a sanitizer, which makes everything slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

/** Small, so that a test of a few hundred kilobytes goes many times around everything; without
 * mapping, so
 * that it takes this way. */
constexpr PortConfig kSmallPort = {256 << 10, 32 << 10, 16 << 10, 64, false, false};
/** Never makes a ring. */
constexpr PortConfig kNoRing = {0, 32 << 10, 16 << 10, 64, false, false};
/** With copies by CMA. */
constexpr PortConfig kCmaPort = {256 << 10, 32 << 10, 16 << 10, 64, false, true};
/** Maps the peer's GPU memory when that pays. */
constexpr PortConfig kMappingPort = {256 << 10, 32 << 10, 16 << 10, 64, true};

/** A received active message. */
struct Message {
    uint8_t id;
    std::vector<unsigned char> bytes;
};

/** A port that keeps what happens to it. */
class TestPort {
public:
    explicit TestPort(const PortConfig &config = kSmallPort);
    TestPort(const TestPort &) = delete;
    TestPort &operator=(const TestPort &) = delete;

    Port &operator*() { return *port_; }
    Port *operator->() { return port_.get(); }
    /** Stays until the port is destroyed: this is its user. */
    Connection &connection(const MailboxAddress &peer);
    Connection &connection(TestPort &peer) { return connection(peer->address()); }
    void destroy() { port_.reset(); }

    std::deque<Message> messages;
    std::vector<Connection *> failed_connections;
    /** Called instead of keeping the message. */
    std::function<void(uint8_t id, const unsigned char *data, size_t length)> on_message;

private:
    static void receive(void *self, uint8_t id, void *data, size_t length);
    static void connection_failed(void *self, Connection &connection);

    std::unique_ptr<Port> port_;
};

/** The end of one operation; must live until it has come. */
class Outcome {
public:
    Completion completion() { return {complete, this}; }
    bool done() const { return calls != 0; }

    unsigned calls = 0;
    Status status = Status::in_progress;

private:
    static void complete(void *self, Status status);
};

/** It has ended once, because the peer failed. */
void expect_peer_failed(const Outcome &outcome);

/** Progresses the ports until the condition holds; false after so long that only a fault explains
 * it. */
template <typename Condition>
bool progress_until(std::initializer_list<TestPort *> ports, Condition condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
        unsigned count = 0;
        for (TestPort *port : ports) {
            count += (*port)->progress();
        }
        if (count == 0) {
            std::this_thread::yield();  // there may be fewer cores than processes that poll
        }
        if (std::chrono::steady_clock::now() > end) {
            return condition();
        }
    }
    return true;
}

/** Progresses the ports until nothing happens any more. */
void settle(std::initializer_list<TestPort *> ports);

/** Makes the ring of a connection ready by a transfer over it. */
void make_ring_ready(TestPort &from, TestPort &to);

/** Memory that peers may use while the object lives. */
class Registration {
public:
    Registration(const void *address, size_t length)
        : address_(reinterpret_cast<uint64_t>(address)),
          id_(RegistrationTable::instance().add(address, length)) {}
    ~Registration() { RegistrationTable::instance().remove(id_); }
    void end() { RegistrationTable::instance().remove(id_); }
    Registration(const Registration &) = delete;
    Registration &operator=(const Registration &) = delete;

    RemoteMemory at(uint64_t offset = 0) const { return {address_ + offset, id_}; }
    /** With the name of the allocation, as in a remote key: so it can be mapped. Asks the driver.
     * */
    RemoteMemory named(uint64_t offset = 0) const;
    /** As named(), with a key that the program has given to its peers. */
    RemoteMemory of_program(uint64_t offset = 0) const;

private:
    uint64_t address_;
    uint64_t id_;
};

/** While it lives a mailbox without a port shows the registrations of this process. */
class ShownRegistrations {
public:
    explicit ShownRegistrations(const MailboxReceiver &mailbox) : list_(mailbox.registrations()) {
        RegistrationTable::instance().publish(list_);
    }
    ~ShownRegistrations() { RegistrationTable::instance().cancel(list_); }
    ShownRegistrations(const ShownRegistrations &) = delete;
    ShownRegistrations &operator=(const ShownRegistrations &) = delete;

private:
    RegistrationList *list_;
};

/** Sends, progressing both ports while there is no room; the last status. */
template <typename Send>
Status send_when_possible(TestPort &from, TestPort &to, Send send) {
    Status status = send();
    const Deadline deadline;
    while (status == Status::no_resource && !deadline.passed()) {
        to->progress();
        from->progress();
        status = send();
    }
    return status;
}

/** What am_pack sends: `length` bytes of the pattern `seed`. */
struct PatternMessage {
    size_t length;
    uint64_t seed;
    /** A Connection::Pack. */
    static size_t pack(void *destination, void *self);
};

/** "" when the message has that id and those bytes. */
std::string check_message(const Message &message, uint8_t id, size_t length, uint64_t seed);

}  // namespace gpushm::test
