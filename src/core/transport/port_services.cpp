// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/port_services.hpp"

#include "core/transport/protocol.hpp"

#include <algorithm>

namespace gpushm {

void PortServices::activate(Connection &connection) {
    if (std::find(active_.begin(), active_.end(), &connection) == active_.end()) {
        active_.push_back(&connection);
    }
}

size_t PortServices::next_ring_bytes() const {
    // Four fragments of eager messages, so that they are copied side by side.
    constexpr size_t kSmallestRing = 4 * kSlotBytes;
    const size_t left = config_.ring_limit - std::min(config_.ring_limit, ring_bytes_in_use_);
    const size_t bytes = std::min(config_.ring_bytes, left / 4);
    return bytes < std::min(kSmallestRing, config_.ring_bytes) ? 0 : bytes;
}

SharedUse PortServices::take_shared_transfer() {
    if (~shared_in_use_ == 0) {
        return SharedUse();
    }
    const auto index = static_cast<uint32_t>(__builtin_ctzll(~shared_in_use_));
    shared_in_use_ |= uint64_t{1} << index;
    last_shared_id_ += last_shared_id_ == UINT32_MAX ? 2 : 1;  // 0 is nobody's
    return {index, last_shared_id_};
}

}  // namespace gpushm
