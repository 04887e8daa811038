// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/offered_reads.hpp"

#include "core/base/log.hpp"
#include "core/copy/copy_any.hpp"

#include <atomic>

namespace gpushm {

bool OfferedReads::read_now(void *local, size_t length, const OfferUse &offer) {
    const OfferedMessage &message = words(offer);
    if (length > OfferedMessage::kBytes ||
        message.phase(offer.id) != OfferedMessage::Phase::complete ||
        copy_any(local, message.data, length) != Status::ok) {
        return false;
    }
    std::atomic_thread_fence(std::memory_order_acquire);  // behind the copy
    return message.phase(offer.id) == OfferedMessage::Phase::complete;
}

void OfferedReads::start(uint64_t id) {
    reads_.push_back(id);  // first: whoever takes the operation back finds it
    operations_.count_part(id, 1);
    channel_.activate();
}

unsigned OfferedReads::progress() {
    unsigned count = 0;
    for (size_t i = 0; i < reads_.size();) {
        const uint64_t id = reads_[i];
        const OfferUse offer = operations_.at(id).remote.offer;
        if (words(offer).phase(offer.id) == OfferedMessage::Phase::open) {
            ++i;
            continue;
        }
        reads_.erase(reads_.begin() + static_cast<ptrdiff_t>(i));
        operations_.count_part(id, -1);
        ++count;
        finish(id, offer);
        i = 0;  // a completion may have changed the list
    }
    return count;
}

/** The sender has copied the message, or does nothing more for it. Else it could not, another get
 * has claimed the message, or the GPU fails: then the sender is asked. */
void OfferedReads::finish(uint64_t id, const OfferUse &offer) {
    const Operation &operation = operations_.at(id);
    const bool is_read = read_now(operation.local, operation.length, offer);
    if (!is_read && words(offer).phase(offer.id) != OfferedMessage::Phase::ended) {
        (void)ask(offer);
        operations_.ask_peer(id, false);
        return;
    }
    if (!is_read) {
        GPUSHM_LOG(debug, "process %d has given up a message that is received only now",
                   channel_.peer.pid);
    }
    operations_.end(id, is_read ? Status::ok : Status::gpu_error);
}

}  // namespace gpushm
