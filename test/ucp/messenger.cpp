// SPDX-License-Identifier: BSD-3-Clause
#include "messenger.hpp"

#include "check.hpp"
#include "remote_memory.hpp"

#include <cstring>

namespace gpushm::ucp_test {
namespace {

constexpr unsigned kAmId = 8;

}  // namespace

const char *to_string(Operation operation) {
    switch (operation) {
        case Operation::tag:
            return "tag";
        case Operation::stream:
            return "stream";
        case Operation::am:
            return "am";
        case Operation::put:
            return "put";
        case Operation::get:
            return "get";
    }
    return "unknown";
}

Messenger::Messenger(Peer &peer, Session &session)
    : peer_(peer), session_(session), awaited_{*this} {
    set_handler(&awaited_);
}

Messenger::~Messenger() {
    set_handler(nullptr);
}

void Messenger::set_handler(void *argument) {
    ucp_am_handler_param_t handler = {};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kAmId;
    handler.cb = argument != nullptr ? on_active_message : nullptr;
    handler.arg = argument;
    require(ucp_worker_set_am_recv_handler(session_.worker().get(), &handler),
            "ucp_worker_set_am_recv_handler");
}

void Messenger::barrier() {
    peer_.channel.barrier(session_.worker().progress_function());
}

void Messenger::transfer(Operation operation, bool sending, GuardedAllocation &memory,
                         const Placement &place) {
    void *const address = memory.address(place);
    ++n_;
    switch (operation) {
        case Operation::tag:
            sending ? send_tagged(address, place.size)
                    : receive_tagged(address, place.capacity, place.size);
            return;
        case Operation::stream:
            sending ? send_stream(address, place.size) : receive_stream(address, place.size);
            return;
        case Operation::am:
            sending ? send_active_message(address, place.size)
                    : receive_active_message(memory, place);
            return;
        case Operation::put:
            sending ? access_remote(true, address, place.size) : expose(address, place.size);
            return;
        case Operation::get:
            sending ? expose(address, place.size) : access_remote(false, address, place.size);
            return;
    }
}

// In turn, the receive is there before the message and the message before the receive.
void Messenger::send_tagged(const void *from, size_t size) {
    const ucp_request_param_t parameters = plain_request();
    const bool expected = n_ % 2 == 0;
    if (expected) {
        barrier();
    }
    ucs_status_ptr_t request = ucp_tag_send_nbx(session_.ep(), from, size, n_, &parameters);
    if (!expected) {
        barrier();
    }
    require(session_.worker().wait(request), "send");
}

void Messenger::receive_tagged(void *to, size_t capacity, size_t size) {
    ucp_request_param_t parameters = plain_request();
    ucp_tag_recv_info_t info = {};
    info.length = size;
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    parameters.user_data = &info;
    parameters.cb.recv = [](void *, ucs_status_t, const ucp_tag_recv_info_t *from, void *into) {
        *static_cast<ucp_tag_recv_info_t *>(into) = *from;
    };
    const bool expected = n_ % 2 == 0;
    if (!expected) {
        barrier();
    }
    ucs_status_ptr_t request =
        ucp_tag_recv_nbx(session_.worker().get(), to, capacity, n_, ~ucp_tag_t{0}, &parameters);
    if (expected) {
        barrier();
    }
    require(session_.worker().wait(request), "receive");
    if (info.length != size) {
        fail("%zu bytes arrived instead of %zu", info.length, size);
    }
}

void Messenger::send_stream(const void *from, size_t size) {
    const ucp_request_param_t parameters = plain_request();
    require(session_.worker().wait(ucp_stream_send_nbx(session_.ep(), from, size, &parameters)),
            "send");
}

void Messenger::receive_stream(void *to, size_t size) {
    ucp_request_param_t parameters = plain_request();
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = UCP_STREAM_RECV_FLAG_WAITALL;
    size_t length = 0;
    require(
        session_.worker().wait(ucp_stream_recv_nbx(session_.ep(), to, size, &length, &parameters)),
        "receive");
}

void Messenger::send_active_message(const void *from, size_t size) {
    const ucp_request_param_t parameters = plain_request();
    barrier();  // the handler waits
    require(session_.worker().wait(
                ucp_am_send_nbx(session_.ep(), kAmId, &n_, sizeof(n_), from, size, &parameters)),
            "send");
}

void Messenger::receive_active_message(GuardedAllocation &memory, const Placement &place) {
    awaited_.memory = &memory;
    awaited_.place = &place;
    awaited_.arrived = false;
    awaited_.fetching = nullptr;
    barrier();
    while (!awaited_.arrived) {
        session_.worker().progress();
    }
    require(session_.worker().wait(awaited_.fetching), "receive");
}

ucs_status_t Messenger::on_active_message(void *argument, const void *header, size_t header_length,
                                          void *data, size_t length,
                                          const ucp_am_recv_param_t *info) {
    auto &awaited = *static_cast<ActiveMessage *>(argument);
    size_t n = 0;
    std::memcpy(&n, header, std::min(header_length, sizeof(n)));
    if (n != awaited.messenger.n_ || length != awaited.place->size) {
        fail("active message %zu of %zu bytes arrived", n, length);
    }
    awaited.arrived = true;
    if ((info->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
        awaited.memory->memory().write(GuardedAllocation::kGuardBytes + awaited.place->misalignment,
                                       data, length);
        return UCS_OK;
    }
    const ucp_request_param_t parameters = plain_request();
    awaited.fetching =
        ucp_am_recv_data_nbx(awaited.messenger.session_.worker().get(), data,
                             awaited.memory->address(*awaited.place), length, &parameters);
    if (UCS_PTR_IS_ERR(awaited.fetching)) {
        require(UCS_PTR_STATUS(awaited.fetching), "ucp_am_recv_data_nbx");
    }
    return awaited.fetching != nullptr ? UCS_INPROGRESS : UCS_OK;
}

void Messenger::access_remote(bool put, void *own, size_t size) {
    const ucp_request_param_t parameters = plain_request();
    const Progress progress = session_.worker().progress_function();
    const std::unique_ptr<RemoteMemory> remote = accept(peer_, session_, progress);
    require(
        session_.worker().wait(
            put ? ucp_put_nbx(session_.ep(), own, size, remote->address, remote->key, &parameters)
                : ucp_get_nbx(session_.ep(), own, size, remote->address, remote->key, &parameters)),
        put ? "put" : "get");
    require(session_.worker().wait(ucp_ep_flush_nbx(session_.ep(), &parameters)), "flush");
    barrier();
}

void Messenger::expose(void *memory, size_t size) {
    const ExposedMemory exposed(session_, memory, size);
    offer(peer_, memory, exposed.key());
    barrier();
}

}  // namespace gpushm::ucp_test
