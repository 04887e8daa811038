// SPDX-License-Identifier: BSD-3-Clause
// How messages go: the buffers are given to the library, or the program copies by hand.
#pragma once

#include "ranks.hpp"

#include <cstddef>
#include <vector>

namespace gpushm::perf {

struct Message {
    char *address;
    size_t bytes;
};

/** Functions throw std::runtime_error when the driver or a message fails. */
class MessageWay {
public:
    virtual ~MessageWay() = default;

    /** One message; they return when its buffer may be used. */
    virtual void send(int to, const Message &message) = 0;
    virtual void receive(int from, const Message &message) = 0;

    /** Many: receives first, then sends. `finish` returns when all buffers may be used. */
    virtual void start_receives(int from, const std::vector<Message> &messages) = 0;
    virtual void start_sends(int to, const std::vector<Message> &messages) = 0;
    virtual void finish() = 0;
};

class DirectWay : public MessageWay {
public:
    /** `ranks` outlives the object. */
    explicit DirectWay(Ranks &ranks) : ranks_(ranks) {}

    void send(int to, const Message &message) override {
        ranks_.send(to, message.address, message.bytes);
    }
    void receive(int from, const Message &message) override {
        ranks_.receive(from, message.address, message.bytes);
    }
    void start_receives(int from, const std::vector<Message> &messages) override {
        for (const Message &message : messages) {
            ranks_.start_receive(from, message.address, message.bytes);
        }
    }
    void start_sends(int to, const std::vector<Message> &messages) override {
        for (const Message &message : messages) {
            ranks_.start_send(to, message.address, message.bytes);
        }
    }
    void finish() override { ranks_.wait_all(); }

private:
    Ranks &ranks_;
};

}  // namespace gpushm::perf
