// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/data_requests.hpp"

#include "core/mapping/memory_export.hpp"

namespace gpushm {

void DataRequests::send(uint64_t id, bool may_be_pushed) {
    Operation &operation = operations_.at(id);
    GetRequest request = {};
    request.transfer_id = id;
    request.address = operation.remote.address;
    request.length = operation.length;
    request.registration = operation.remote.registration;
    request.speculative_copy = operation.remote.speculative_copy;
    request.buffer = make_buffer_key(operation.local_info, operation.local_on_gpu);
    if (may_be_pushed && request.buffer.can_be_mapped()) {
        permissions_.prepare();
        operation.shared = channel_.port.take_shared_transfer();
        request.shared = operation.shared;
    }
    if (request.shared.exists()) {
        channel_.port.shared_transfer(request.shared.index).open(request.shared.id, 1);
        request.destination = reinterpret_cast<uint64_t>(operation.local);
    }
    channel_.send(CellKind::get_request, request);
}

}  // namespace gpushm
