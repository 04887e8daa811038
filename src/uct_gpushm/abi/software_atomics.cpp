// SPDX-License-Identifier: BSD-3-Clause
// The atomic operations that UCP does with the CPU of the target, because no transport within a
// node offers them.
#include "uct_gpushm/abi/running.hpp"

#include <cstdint>
#include <cstring>
#include <functional>

namespace gpushm::abi {
namespace {

/** The first members of ucp_am_handler_t (src/ucp/core/ucp_context.h, UCX 1.13 to 1.23). */
struct AmHandler {
    uint64_t features;
    uct_am_callback_t callback;
};

/** ucp_atomic_req_hdr_t (src/ucp/rma/rma.h, UCX 1.13 to 1.23). The operands follow. */
struct __attribute__((packed)) AtomicHeader {
    uint64_t address;
    uint64_t ep_id;
    uint64_t request_id;
    uint8_t length;
    uint8_t opcode;
};

constexpr unsigned kAtomicRequest = 20;  // UCP_AM_ID_ATOMIC_REQ, src/ucp/core/ucp_types.h
constexpr size_t kMaxOperands = 16;      // bytes: compare-and-swap of 8 has two

uct_am_callback_t original;
bool (*serve_request)(const AtomicRequest &request, const RunAtomicAt &run_at);

ucs_status_t on_atomic_request(void *worker, void *message, size_t length, unsigned flags) {
    AtomicHeader header;
    unsigned char changed[sizeof(header) + kMaxOperands];
    if (length >= sizeof(header) && length <= sizeof(changed)) {
        memcpy(&header, message, sizeof(header));
        const auto run_at = [&](void *address) {
            const auto value = reinterpret_cast<uint64_t>(address);
            memcpy(changed, message, length);
            memcpy(changed + offsetof(AtomicHeader, address), &value, sizeof(value));
            original(worker, changed, length, 0);
        };
        if (serve_request({reinterpret_cast<void *>(header.address), header.length},
                          std::cref(run_at))) {
            return UCS_OK;  // like UCP's own handler: the message is not kept
        }
    }
    return original(worker, message, length, flags);
}

}  // namespace

bool intercept_atomics(bool (*serve)(const AtomicRequest &request, const RunAtomicAt &run_at)) {
    auto *handlers = static_cast<AmHandler **>(running().am_handlers);
    AmHandler *handler = handlers != nullptr ? handlers[kAtomicRequest] : nullptr;
    if (handler == nullptr || handler->callback == nullptr) {
        return false;
    }
    if (handler->callback != on_atomic_request) {
        // A worker copies the handler from UCP's table.
        original = handler->callback;
        serve_request = serve;
        handler->callback = on_atomic_request;
    }
    return true;
}

}  // namespace gpushm::abi
