// SPDX-License-Identifier: BSD-3-Clause
// GPU memory of this process that the peer maps: handles that it asks for, and their end.
#pragma once

#include "core/base/immovable.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/transport/peer_channel.hpp"
#include "core/transport/protocol.hpp"

#include <cstdint>
#include <deque>
#include <vector>

namespace gpushm {

/** One thread at a time. */
class ExportedMemory : Immovable {
public:
    explicit ExportedMemory(PeerChannel &channel) : channel_(channel) {}

    /** A peer that does not wait for answers is broken: then the connection fails. */
    void receive_request(const MapRequest &request);
    /** Answers behind the copies that the peer has asked for meanwhile, because it waits for these.
     * Not while the peer has no room for answers. The number of answers. */
    unsigned answer_requests();
    bool busy() const { return !requests_.empty(); }

    /** Tells the peer of memory that it may map. */
    void offer(const BufferKey &buffer);
    /** Memory of this process that the peer goes on to use: it is not taken back while it is there,
     * whatever else the peer maps. */
    void keep(uint64_t buffer_id) { kept_ = buffer_id; }
    /** Whether that memory is there, as far as is known. */
    bool has_offered() const { return offered_ != 0; }

    /** Tells the peer of buffers that were freed. Looks each one up. */
    void check();

    /** The peer asks for nothing and has nothing mapped any more. */
    void forget() {
        requests_.clear();
        exported_.clear();
    }

private:
    void answer(const MapRequest &request);
    void remember(const BufferKey &buffer);
    std::vector<BufferKey>::iterator take_back(std::vector<BufferKey>::iterator buffer);

    PeerChannel &channel_;
    std::deque<MapRequest> requests_;
    std::vector<BufferKey> exported_;  // what the peer may have mapped
    uint64_t offered_ = 0;             // buffer id
    uint64_t kept_ = 0;                // buffer id
};

}  // namespace gpushm
