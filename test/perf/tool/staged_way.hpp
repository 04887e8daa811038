// SPDX-License-Identifier: BSD-3-Clause
// Messages of a program whose message library takes host memory only (Ji et al., listing 1): it
// copies to page-locked memory, sends that, receives into such memory and copies from there.
#pragma once

#include "../driver.hpp"
#include "../memory.hpp"
#include "message_way.hpp"

#include <memory>

namespace gpushm::perf {

/** In the context that is current when it is made, which is current in all calls. */
class StagedWay : public MessageWay {
public:
    struct Shape {
        bool source_on_gpu;
        bool destination_on_gpu;
        size_t bytes;    // of all messages that are under way in one direction
        size_t message;  // bytes of each
        size_t piece;    // 0: a message is copied as a whole, and the copy waited for
    };

    /** `ranks` and `driver` outlive the object. */
    StagedWay(Ranks &ranks, const Driver &driver, const Shape &shape);
    ~StagedWay() override;
    StagedWay(const StagedWay &) = delete;
    StagedWay &operator=(const StagedWay &) = delete;

    void send(int to, const Message &message) override;
    void receive(int from, const Message &message) override;
    void start_receives(int from, const std::vector<Message> &messages) override;
    void start_sends(int to, const std::vector<Message> &messages) override;
    void finish() override;

private:
    /** Of a message; `host` is the page-locked memory or, for a message in host memory, itself. */
    struct Piece {
        char *user;
        char *host;
        size_t bytes;
    };

    std::vector<Piece> pieces_of(const std::vector<Message> &messages, const Memory *host) const;
    CUevent event(size_t n);

    Ranks &ranks_;
    const Driver &driver_;
    const Shape shape_;
    std::unique_ptr<Memory> sent_;      // null where the source is in host memory
    std::unique_ptr<Memory> received_;  // as is the destination
    CUstream out_ = nullptr;
    CUstream in_ = nullptr;
    std::vector<CUevent> events_;    // behind copies to the host
    std::vector<Piece> to_receive_;  // started
};

}  // namespace gpushm::perf
