// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/status.hpp"

namespace gpushm::uct {

ucs_status_t failure_to_ucs(Status status) {
    switch (status) {
        case Status::ok:
            break;
        case Status::in_progress:
            return UCS_INPROGRESS;
        case Status::no_resource:
            return UCS_ERR_NO_RESOURCE;
        case Status::invalid:
            return UCS_ERR_INVALID_PARAM;
        case Status::out_of_memory:
            return UCS_ERR_NO_MEMORY;
        case Status::gpu_error:
            return UCS_ERR_IO_ERROR;
        case Status::canceled:
            return UCS_ERR_CANCELED;
        case Status::peer_failed:
            return UCS_ERR_ENDPOINT_TIMEOUT;  // as the transports of src/uct/sm
    }
    return UCS_ERR_IO_ERROR;
}

namespace {

/** uct_invoke_completion and uct_completion_update_status of UCX (src/uct/base/uct_iface.h). */
void count_down(void *argument, Status status) {
    auto *completion = static_cast<uct_completion_t *>(argument);
    if (status != Status::ok && completion->status == UCS_OK) {
        completion->status = to_ucs(status);
    }
    if (--completion->count == 0) {
        completion->func(completion);
    }
}

}  // namespace

Completion to_core(uct_completion_t *completion) {
    return completion == nullptr ? Completion() : Completion{count_down, completion};
}

}  // namespace gpushm::uct
