// SPDX-License-Identifier: BSD-3-Clause
#include "transfers.hpp"

#include "check.hpp"

#include <algorithm>

namespace gpushm::ucp_test {

void for_each_transfer(Peer &peer, const char *sizes_fallback,
                       const std::function<void(const Transfer &)> &body) {
    const std::vector<MemoryKind> kinds = kinds_of(peer.options, "host");
    const std::vector<size_t> sizes = sizes_of(peer.options, sizes_fallback);
    const size_t largest = *std::max_element(sizes.begin(), sizes.end());
    std::map<MemoryKind, std::unique_ptr<GuardedBuffer>> buffers;
    for (MemoryKind kind : kinds) {
        buffers[kind] = make_buffer(kind, largest + 64);
    }
    size_t n = 0;
    for (int sender : {0, 1}) {
        for (MemoryKind source : kinds) {
            for (MemoryKind destination : kinds) {
                for (size_t size : sizes) {
                    const bool sending = peer.role == sender;
                    set_activity(peer.options.scenario() + " " + to_string(source) + " -> " +
                                 to_string(destination) + ", " + std::to_string(size) +
                                 " bytes from process " + std::to_string(sender));
                    GuardedBuffer &buffer = *buffers[sending ? source : destination];
                    const Message message = nth_message(n, size);
                    sending ? buffer.prepare_source(message) : buffer.prepare_destination(message);
                    body({n, sending, message, buffer, buffer.address(message)});
                    if (!sending) {
                        check_received(buffer, message);
                    }
                    ++n;
                }
            }
        }
    }
}

}  // namespace gpushm::ucp_test
