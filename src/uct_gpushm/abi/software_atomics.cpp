// SPDX-License-Identifier: BSD-3-Clause
// The atomic operations that UCP does with the CPU of the target, because no transport within a
// node offers them.
#include "uct_gpushm/abi/running.hpp"

#include <cstdint>
#include <cstring>

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

struct Interception {
    uct_am_callback_t original;
    bool (*is_foreign)(const AtomicRequest &request);
    void (*serve)(const AtomicRequest &request, AtomicHandler &handler);
};

/** Set before a worker copies the handler from UCP's table. */
Interception interception;

class UcpAtomicHandler final : public AtomicHandler {
public:
    UcpAtomicHandler(void *worker, const void *message, size_t length)
        : worker_(worker), length_(length) {
        memcpy(message_, message, length);
    }
    void run_at(void *address) override {
        const auto value = reinterpret_cast<uint64_t>(address);
        memcpy(message_ + offsetof(AtomicHeader, address), &value, sizeof(value));
        interception.original(worker_, message_, length_, 0);
    }

private:
    void *worker_;
    size_t length_;
    unsigned char message_[sizeof(AtomicHeader) + kMaxOperands];
};

ucs_status_t on_atomic_request(void *worker, void *message, size_t length, unsigned flags) {
    AtomicHeader header;
    if (length >= sizeof(header) && length <= sizeof(header) + kMaxOperands) {
        memcpy(&header, message, sizeof(header));
        const AtomicRequest request = {reinterpret_cast<void *>(header.address), header.length};
        if (interception.is_foreign(request)) {
            UcpAtomicHandler handler(worker, message, length);
            interception.serve(request, handler);
            return UCS_OK;  // like UCP's own handler: the message is not kept
        }
    }
    return interception.original(worker, message, length, flags);
}

}  // namespace

bool intercept_atomics(bool (*is_foreign)(const AtomicRequest &request),
                       void (*serve)(const AtomicRequest &request, AtomicHandler &handler)) {
    auto *handlers = static_cast<AmHandler **>(running().am_handlers);
    AmHandler *handler = handlers != nullptr ? handlers[kAtomicRequest] : nullptr;
    if (handler == nullptr || handler->callback == nullptr) {
        return false;
    }
    if (handler->callback != on_atomic_request) {
        interception = {handler->callback, is_foreign, serve};
        handler->callback = on_atomic_request;
    }
    return true;
}

}  // namespace gpushm::abi
