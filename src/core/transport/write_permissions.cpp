// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/write_permissions.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"

#include <algorithm>
#include <chrono>

namespace gpushm {
namespace {

// For a peer that lives and does not end a piece that it has claimed (it was stopped, say).
constexpr std::chrono::seconds kPatience{2};

}  // namespace

void WritePermissions::close(const SharedUse &use, uint32_t pieces) {
    if (!use.exists()) {
        return;
    }
    const uint32_t claimed =
        pieces - channel_.port.shared_transfer(use.index).close(use.id, pieces);
    const Closed closed = {use, claimed};
    if (peer_writes(closed)) {
        closed_.push_back(closed);
    } else {
        channel_.port.release_shared_transfer(use.index);
    }
}

bool WritePermissions::peer_writes(const Closed &closed) const {
    return closed.claimed != 0 &&
           channel_.port.shared_transfer(closed.use.index).helper(closed.use.id, closed.claimed) ==
               SharedTransfer::Helper::busy;
}

void WritePermissions::await() {
    if (closed_.empty()) {
        return;  // as after most operations
    }
    const auto end = std::chrono::steady_clock::now() + kPatience;
    bool waits = true;
    while (waits && std::any_of(closed_.begin(), closed_.end(),
                                [this](const Closed &closed) { return peer_writes(closed); })) {
        // Of all connections: processes may wait for each other in a ring.
        as_possible([this] { channel_.port.end_own_pushes(); });
        waits = channel_.peer_alive();  // the copies of a dead process have ended with it
        if (waits && std::chrono::steady_clock::now() > end) {
            waits = false;
            GPUSHM_LOG(error,
                       "process %d does not end a copy into memory of this process: see whether it "
                       "is stopped or hangs",
                       channel_.peer.pid);
        }
    }
    for (const Closed &closed : closed_) {
        channel_.port.release_shared_transfer(closed.use.index);
    }
    closed_.clear();
}

}  // namespace gpushm
