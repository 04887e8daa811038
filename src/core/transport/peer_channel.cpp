// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/peer_channel.hpp"

#include "core/base/addresses.hpp"
#include "core/base/log.hpp"
#include "core/memory/registration_table.hpp"

namespace gpushm {

void PeerChannel::give_up_broken_transfer() {
    GPUSHM_LOG(error,
               "process %d reported the end of a transfer that has not ended: the connection is "
               "closed; look for memory corruption in the job's processes",
               peer.pid);
    fail();
}

bool source_is_gone(ChunkedTransfer &transfer, const PeerChannel &channel) {
    if (transfer.is_reply && !transfer.source_gone &&
        !RegistrationTable::instance().covers(transfer.registration, to_number(transfer.source),
                                              transfer.total)) {
        GPUSHM_LOG(debug,
                   "process %d reads %llu bytes that are not registered for it any more: refused",
                   channel.peer.pid, static_cast<unsigned long long>(transfer.total));
        transfer.source_gone = true;
    }
    return transfer.source_gone;
}

}  // namespace gpushm
