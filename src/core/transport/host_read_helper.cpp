// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/host_read_helper.hpp"

#include "core/base/addresses.hpp"
#include "core/base/cma.hpp"
#include "core/base/drop_if.hpp"
#include "core/base/log.hpp"
#include "core/base/monotonic_clock.hpp"
#include "core/memory/registration_table.hpp"
#include "core/transport/host_pieces.hpp"

#include <optional>

namespace gpushm {
namespace {

// No process id is given to another process sooner: all others are given first (Linux
// kernel/pid.c, alloc_pid(): idr_alloc_cyclic()).
constexpr uint64_t kSoonestReuseNs = 1'000'000;

/** Whether the peer may read it. */
bool is_registered(const HelpRequest &request) {
    return RegistrationTable::instance().covers(request.registration, request.address,
                                                request.length);
}

}  // namespace

/** Takes out the requests for transfers of which nothing is left to do. */
void HostReadHelper::forget_served() {
    drop_if(requests_, [this](const HelpRequest &request) {
        return channel_.mailbox.shared_transfer(request.shared.index)
            .all_claimed(request.shared.id);
    });
}

void HostReadHelper::receive_request(const HelpRequest &request) {
    const uint64_t pieces =
        request.piece_bytes == 0 ? 0 : (request.length - 1) / request.piece_bytes + 1;
    if (requests_.size() >= kSharedTransfers) {
        forget_served();  // the reader copied them alone, and uses their words for others
    }
    if (request.shared.index >= kSharedTransfers || request.length == 0 || pieces == 0 ||
        pieces > SharedTransfer::kMaxPieces || requests_.size() >= kSharedTransfers) {
        GPUSHM_LOG(error,
                   "process %d sent an invalid request for help with a copy: the request is "
                   "ignored; look for memory corruption in the job's processes",
                   channel_.peer.pid);
        return;
    }
    // Nothing is written into a process that has got the id of a dead one. To ask takes 0.5 us, so
    // this asks only when there was time for that (or the request comes from the future, by the
    // clock of another time namespace).
    if (monotonic_nanoseconds() - request.asked_at > kSoonestReuseNs && !channel_.peer_alive()) {
        return;
    }
    requests_.push_back(request);
    channel_.activate();
}

/** One piece into the reader's memory. False: the request has been served, or failed. */
bool HostReadHelper::copy_piece(const HelpRequest &request) {
    SharedTransfer &transfer = channel_.mailbox.shared_transfer(request.shared.index);
    const uint32_t id = request.shared.id;
    const std::optional<uint32_t> piece = transfer.claim_last(id);
    if (!piece) {
        return false;
    }
    const uint64_t offset = *piece * request.piece_bytes;
    const bool written = is_registered(request) &&
                         write_memory(channel_.peer.pid, to_pointer(request.address + offset),
                                      request.destination + offset,
                                      length_of_piece(offset, request.piece_bytes, request.length));
    transfer.finish(id, written);
    return written;
}

unsigned HostReadHelper::progress() {
    unsigned count = 0;
    while (!requests_.empty() && count < kPiecesPerProgress) {
        if (copy_piece(requests_.front())) {
            ++count;
        } else {
            requests_.pop_front();
        }
    }
    return count;
}

}  // namespace gpushm
