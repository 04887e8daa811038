// SPDX-License-Identifier: BSD-3-Clause
// Replaces the functions of UCP that Open MPI's pml/ucx calls (ompi/mca/pml/ucx/pml_ucx.c; equal in
// 4.1, 5.0 and 6.0). Two kinds of messages are changed: derived datatypes in GPU memory, and
// contiguous sends from device memory that are to complete fast. All others are forwarded.
#include "openmpi/datatypes/message_calls.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/copy/copy_any.hpp"
#include "core/memory/known_host_pages.hpp"
#include "core/memory/memory_query.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"
#include "openmpi/binding/no_throw_calls.hpp"
#include "openmpi/binding/ucp_functions.hpp"
#include "openmpi/datatypes/generic_datatypes.hpp"
#include "openmpi/datatypes/offered_sends.hpp"
#include "openmpi/datatypes/staged_message.hpp"
#include "openmpi/settings/first_protocols.hpp"
#include "openmpi/settings/settings.hpp"

#include <memory>
#include <new>
#include <optional>
#include <utility>

namespace gpushm::openmpi {
namespace {

/** The parameters that still apply when gpushm's buffer replaces that of a message. */
ucp_request_param_t parameters_of(const ucp_request_param_t *original) {
    constexpr uint32_t kKept = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FLAG_NO_IMM_CMPL |
                               UCP_OP_ATTR_FLAG_FAST_CMPL | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL |
                               UCP_OP_ATTR_FLAG_MULTI_SEND;
    ucp_request_param_t parameters = {};
    parameters.op_attr_mask = original->op_attr_mask & kKept;
    if ((original->op_attr_mask & UCP_OP_ATTR_FIELD_REQUEST) != 0) {
        parameters.request = original->request;
    }
    return parameters;
}

ucp_datatype_t datatype_of(const ucp_request_param_t *parameters) {
    return (parameters->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) != 0 ? parameters->datatype
                                                                        : ucp_dt_make_contig(1);
}

bool is_contiguous(ucp_datatype_t datatype) {
    return (datatype & UCP_DATATYPE_CLASS_MASK) == UCP_DATATYPE_CONTIG;
}

/** `datatype` is contiguous. */
size_t bytes_of(ucp_datatype_t datatype, size_t count) {
    return (datatype >> UCP_DATATYPE_SHIFT) * count;
}

void *user_data_of(const ucp_request_param_t *parameters) {
    return (parameters->op_attr_mask & UCP_OP_ATTR_FIELD_USER_DATA) != 0 ? parameters->user_data
                                                                         : nullptr;
}

bool has_callback(const ucp_request_param_t *parameters) {
    return (parameters->op_attr_mask & UCP_OP_ATTR_FIELD_CALLBACK) != 0;
}

/** Whether the message is contiguous in memory that is known to be host memory, and `post_as_host`
 * understands its parameters. */
bool is_known_host_message(const void *buffer, const ucp_request_param_t *parameters) {
    constexpr uint32_t kFields = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK |
                                 UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE;
    constexpr uint32_t kFlags = UCP_OP_ATTR_FLAG_NO_IMM_CMPL | UCP_OP_ATTR_FLAG_FAST_CMPL |
                                UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL | UCP_OP_ATTR_FLAG_MULTI_SEND;
    return (parameters->op_attr_mask & ~(kFields | kFlags)) == 0 &&
           is_contiguous(datatype_of(parameters)) && KnownHostPages::instance().contains(buffer);
}

/** Calls `post` for a known host message. The parameters say what it is, and UCP asks no memory
 * domain about it: each question takes a look at UCX's memory type cache and two calls. */
template <typename Post>
ucs_status_ptr_t post_as_host(const ucp_request_param_t *parameters, Post post) {
    ucp_request_param_t told;
    told.op_attr_mask = parameters->op_attr_mask | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    told.request = parameters->request;
    told.cb = parameters->cb;
    told.datatype = parameters->datatype;
    told.user_data = parameters->user_data;
    told.memory_type = UCS_MEMORY_TYPE_HOST;
    return post(&told);
}

/** Hands a message to UCX by calling `post`. The caller has set the callback in `parameters`. */
template <typename Post>
ucs_status_ptr_t submit(std::unique_ptr<StagedMessage> message, ucp_request_param_t parameters,
                        Completion completion, Post post) {
    message->set_completion(std::move(completion));
    parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    parameters.user_data = message.get();
    if (message->is_in_host_memory()) {
        parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        parameters.memory_type = UCS_MEMORY_TYPE_HOST;
    }
    const ucs_status_ptr_t request = post(message->block(), message->bytes(), &parameters);
    StagedMessage::submitted(std::move(message), request);
    return request;
}

// ---------------------------------------------------------------- sends

void on_sent(void *request, ucs_status_t status, void *message) {
    static_cast<StagedMessage *>(message)->end(request, status, nullptr);
}

/** Of messages whose block may be in device memory from `shortest` bytes on. */
StagedMessage::Limits staging_limits(size_t shortest) {
    const size_t staging = limits().staging;
    return {staging, staging != kUnlimited ? shortest : kUnlimited};
}

/** All are packed where a derived datatype may fail on its way to another host. */
StagedMessage::Limits limits_of_sends(size_t shortest) {
    const StagedMessage::Limits sizes = staging_limits(shortest);
    return sizes.device != kUnlimited && first_protocols_between_hosts()
               ? StagedMessage::Limits{1, 1}
               : sizes;
}

/** Not packed yet. `must_return_below`: shorter messages are to complete before they are received.
 * Null: the message is sent as it is. */
std::unique_ptr<StagedMessage> stage(const void *buffer, size_t count, ucp_datatype_t datatype,
                                     size_t must_return_below) {
    return is_contiguous(datatype)
               ? nullptr
               : StagedMessage::create(const_cast<void *>(buffer), count, datatype,
                                       limits_of_sends(must_return_below));
}

template <typename Send>
ucs_status_ptr_t send(std::unique_ptr<StagedMessage> message, ucp_request_param_t parameters,
                      Completion completion, Send send) {
    parameters.cb.send = on_sent;
    return submit(std::move(message), parameters, std::move(completion), send);
}

Completion completion_of(ucp_send_callback_t callback) {
    return [callback](void *request, ucs_status_t status, const ucp_tag_recv_info_t *) {
        callback(request, status);
    };
}

Completion completion_of_send(const ucp_request_param_t *parameters) {
    if (!has_callback(parameters)) {
        return {};
    }
    return [callback = parameters->cb.send, user_data = user_data_of(parameters)](
               void *request, ucs_status_t status, const ucp_tag_recv_info_t *) {
        callback(request, status, user_data);
    };
}

/** By the sign of MPI's tag: PML_UCX_MAKE_SEND_TAG (pml_ucx_request.h). */
bool is_of_collective(ucp_tag_t tag) {
    return (tag & ucp_tag_t{1} << 63) != 0;
}

/** The size from which MPI_Send may wait for the receive; 0 for sends that always may. */
size_t must_return_below(ucp_tag_t tag, const ucp_request_param_t *parameters) {
    const bool is_mpi_send =
        (parameters->op_attr_mask & UCP_OP_ATTR_FLAG_FAST_CMPL) != 0 && !is_of_collective(tag);
    return is_mpi_send ? limits().buffered : 0;
}

/** How gpushm sends a contiguous message from device memory if Open MPI asks UCP to complete it
 * fast (UCP_OP_ATTR_FLAG_FAST_CMPL), as it does in MPI_Send and in collective operations
 * (mca_pml_ucx_send_nbr). UCP would copy messages up to about 30 KB before it sends them:
 * see doc/decisions/openmpi-fast-completion.md. */
enum class FastSend {
    as_it_is,           // all other messages
    awaited,            // without the flag: UCP may wait for the receiver
    short_of_mpi_send,  // it is to return although no receive is posted
};

/** Sends of collective operations have negative tags and may wait for the receive. MPI_Send may
 * wait as well, but programs rely on short ones to return. UCP does not promise that it returns: a
 * UCX 1.19 waits if a process sends to itself. */
FastSend choose_fast_send(const void *buffer, size_t count, ucp_tag_t tag,
                          const ucp_request_param_t *parameters) {
    constexpr uint32_t kUnderstood =
        UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FLAG_FAST_CMPL;
    const ucp_datatype_t datatype = datatype_of(parameters);
    if ((parameters->op_attr_mask & UCP_OP_ATTR_FLAG_FAST_CMPL) == 0 ||
        (parameters->op_attr_mask & ~kUnderstood) != 0 || !is_contiguous(datatype) || count == 0 ||
        query_memory(buffer).kind != MemoryKind::device) {
        return FastSend::as_it_is;
    }
    return bytes_of(datatype, count) < must_return_below(tag, parameters)
               ? FastSend::short_of_mpi_send
               : FastSend::awaited;
}

ucs_status_ptr_t send_awaited(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
                              const ucp_request_param_t *parameters) {
    ucp_request_param_t patient = parameters_of(parameters);
    patient.op_attr_mask &= ~uint32_t{UCP_OP_ATTR_FLAG_FAST_CMPL};
    patient.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    patient.datatype = datatype_of(parameters);
    return ucp().tag_send_nbx(ep, buffer, count, tag, &patient);
}

void on_copy_sent(void *, ucs_status_t, void *copy) {
    delete static_cast<HostBlock *>(copy);
}

/** Sends the message as it is if there is no memory for a copy, or the GPU fails. */
ucs_status_ptr_t send_buffered(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
                               const ucp_request_param_t *parameters) {
    const size_t bytes = bytes_of(datatype_of(parameters), count);
    std::unique_ptr<HostBlock> copy(new (std::nothrow) HostBlock(bytes));
    if (copy == nullptr || copy->address() == nullptr ||
        copy_any(copy->address(), buffer, bytes) != Status::ok) {
        return ucp().tag_send_nbx(ep, buffer, count, tag, parameters);
    }
    ucp_request_param_t ours = parameters_of(parameters);
    ours.op_attr_mask |=
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    ours.cb.send = on_copy_sent;
    ours.user_data = copy.get();
    ours.memory_type = UCS_MEMORY_TYPE_HOST;
    const ucs_status_ptr_t request = ucp().tag_send_nbx(ep, copy->address(), bytes, tag, &ours);
    if (UCS_PTR_IS_PTR(request)) {
        (void)copy.release();  // until on_copy_sent()
    }
    return request;
}

ucs_status_ptr_t send_short(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
                            const ucp_request_param_t *parameters) {
    const size_t bytes = bytes_of(datatype_of(parameters), count);
    const StridedRows row = {reinterpret_cast<uintptr_t>(buffer), bytes, 1, bytes};
    const std::optional<ucs_status_ptr_t> offered =
        send_offered(ep, row, look_up_memory(buffer), tag);
    return offered ? *offered : send_buffered(ep, buffer, count, tag, parameters);
}

std::optional<ucs_status_ptr_t> offer_rows(ucp_ep_h ep, const StagedMessage &message,
                                           ucp_tag_t tag) {
    const std::optional<StridedRows> rows = message.rows();
    return rows ? send_offered(ep, *rows, message.info(), tag) : std::nullopt;
}

ucs_status_ptr_t tag_send_nbx(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
                              const ucp_request_param_t *parameters) {
    const auto post = [&](const ucp_request_param_t *told) {
        return ucp().tag_send_nbx(ep, buffer, count, tag, told);
    };
    if (is_known_host_message(buffer, parameters)) {
        return post_as_host(parameters, post);
    }
    switch (choose_fast_send(buffer, count, tag, parameters)) {
        case FastSend::awaited:
            return send_awaited(ep, buffer, count, tag, parameters);
        case FastSend::short_of_mpi_send:
            return send_short(ep, buffer, count, tag, parameters);
        case FastSend::as_it_is:
            break;
    }
    const size_t shortest = must_return_below(tag, parameters);
    auto message = stage(buffer, count, datatype_of(parameters), shortest);
    if (message != nullptr && message->bytes() < shortest && !has_callback(parameters)) {
        if (const std::optional<ucs_status_ptr_t> offered = offer_rows(ep, *message, tag)) {
            return *offered;
        }
    }
    if (message == nullptr || !message->pack()) {
        return post(parameters);
    }
    ucp_request_param_t kept = parameters_of(parameters);
    const bool is_short_copy =
        message->is_in_host_memory() && message->bytes() <= PinnedBufferPool::kSmallBlockBytes;
    if (!is_short_copy && message->bytes() >= shortest) {
        kept.op_attr_mask &= ~uint32_t{UCP_OP_ATTR_FLAG_FAST_CMPL};  // it may wait
    }
    return send(std::move(message), kept, completion_of_send(parameters),
                [&](const void *block, size_t bytes, const ucp_request_param_t *ours) {
                    return ucp().tag_send_nbx(ep, block, bytes, tag, ours);
                });
}

/** ucp_tag_send_nb and ucp_tag_send_sync_nb. */
template <bool kSynchronous>
ucs_status_ptr_t send_or_pack(ucp_ep_h ep, const void *buffer, size_t count,
                              ucp_datatype_t datatype, ucp_tag_t tag,
                              ucp_send_callback_t callback) {
    auto message = stage(buffer, count, datatype, 0);
    if (message == nullptr || !message->pack()) {
        return replaced_by<send_or_pack<kSynchronous>>(ep, buffer, count, datatype, tag, callback);
    }
    const auto post = kSynchronous ? ucp().tag_send_sync_nbx : ucp().tag_send_nbx;
    return send(std::move(message), {}, completion_of(callback),
                [&](const void *block, size_t bytes, const ucp_request_param_t *ours) {
                    return post(ep, block, bytes, tag, ours);
                });
}

void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                 void *argument) {
    auto *message = static_cast<StagedMessage *>(argument);
    const bool lost = status == UCS_OK && !message->unpack(info->length);
    message->end(request, lost ? UCS_ERR_IO_ERROR : status, info);
}

/** None are staged where derived datatypes may fail between hosts: the sender may be a host buffer,
 * whose derived datatype then arrives for a contiguous receive. */
std::unique_ptr<StagedMessage> make_room(void *buffer, size_t count, ucp_datatype_t datatype) {
    return is_contiguous(datatype) || first_protocols_between_hosts()
               ? nullptr
               : StagedMessage::create(buffer, count, datatype, staging_limits(0));
}

/** UCX calls back in any case, also if the message is complete at once. */
template <typename Receive>
ucs_status_ptr_t receive(std::unique_ptr<StagedMessage> message, ucp_request_param_t parameters,
                         Completion completion, Receive receive) {
    parameters.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    parameters.cb.recv = on_received;
    message->expect();
    return submit(std::move(message), parameters, std::move(completion), receive);
}

Completion completion_of(ucp_tag_recv_callback_t callback) {
    return [callback](void *request, ucs_status_t status, const ucp_tag_recv_info_t *info) {
        ucp_tag_recv_info_t copy = *info;
        callback(request, status, &copy);
    };
}

Completion completion_of_receive(const ucp_request_param_t *parameters) {
    if (!has_callback(parameters)) {
        return {};
    }
    return [callback = parameters->cb.recv, user_data = user_data_of(parameters)](
               void *request, ucs_status_t status, const ucp_tag_recv_info_t *info) {
        callback(request, status, info, user_data);
    };
}

ucs_status_ptr_t tag_recv_nbx(ucp_worker_h worker, void *buffer, size_t count, ucp_tag_t tag,
                              ucp_tag_t mask, const ucp_request_param_t *parameters) {
    const auto post = [&](const ucp_request_param_t *told) {
        return replaced_by<tag_recv_nbx>(worker, buffer, count, tag, mask, told);
    };
    if (is_known_host_message(buffer, parameters)) {
        return post_as_host(parameters, post);
    }
    auto message = make_room(buffer, count, datatype_of(parameters));
    if (message == nullptr) {
        return post(parameters);
    }
    return receive(std::move(message), parameters_of(parameters), completion_of_receive(parameters),
                   [&](void *block, size_t bytes, const ucp_request_param_t *ours) {
                       return replaced_by<tag_recv_nbx>(worker, block, bytes, tag, mask, ours);
                   });
}

ucs_status_ptr_t tag_recv_nb(ucp_worker_h worker, void *buffer, size_t count,
                             ucp_datatype_t datatype, ucp_tag_t tag, ucp_tag_t mask,
                             ucp_tag_recv_callback_t callback) {
    auto message = make_room(buffer, count, datatype);
    if (message == nullptr) {
        return replaced_by<tag_recv_nb>(worker, buffer, count, datatype, tag, mask, callback);
    }
    return receive(std::move(message), {}, completion_of(callback),
                   [&](void *block, size_t bytes, const ucp_request_param_t *ours) {
                       return replaced_by<tag_recv_nbx>(worker, block, bytes, tag, mask, ours);
                   });
}

ucs_status_ptr_t tag_msg_recv_nb(ucp_worker_h worker, void *buffer, size_t count,
                                 ucp_datatype_t datatype, ucp_tag_message_h matched,
                                 ucp_tag_recv_callback_t callback) {
    auto message = make_room(buffer, count, datatype);
    if (message == nullptr) {
        return replaced_by<tag_msg_recv_nb>(worker, buffer, count, datatype, matched, callback);
    }
    return receive(std::move(message), {}, completion_of(callback),
                   [&](void *block, size_t bytes, const ucp_request_param_t *ours) {
                       return ucp().tag_msg_recv_nbx(worker, block, bytes, matched, ours);
                   });
}

/** UCP marks a request as complete before it calls back (ucp_request_complete,
 * src/ucp/core/ucp_request.inl). The callback unpacks the elements, perhaps in another thread, so
 * the request is in progress until the callback ends. */
ucs_status_t request_test(void *request, ucp_tag_recv_info_t *info) {
    return StagedMessage::is_under_way(request) ? UCS_INPROGRESS
                                                : replaced_by<request_test>(request, info);
}

/** UCP would forget the callback of a request that is freed while its message is in progress. */
void request_free(void *request) {
    if (!StagedMessage::free_later(request)) {
        ucp().request_free(request);
    }
}

// ---------------------------------------------------------------- datatypes

ucs_status_t dt_create_generic(const ucp_generic_dt_ops_t *operations, void *datatype,
                               ucp_datatype_t *generic) {
    const ucs_status_t status = replaced_by<dt_create_generic>(operations, datatype, generic);
    if (status == UCS_OK) {
        as_possible([&] {
            GenericDatatypes::instance().add(*generic, datatype);
        });  // out of memory: its messages are sent as they are
    }
    return status;
}

void dt_destroy(ucp_datatype_t datatype) {
    GenericDatatypes::instance().remove(datatype);
    replaced_by<dt_destroy>(datatype);
}

}  // namespace

void redirect_message_calls(const OpenMpiLibrary &library, CallRedirection *redirection) {
    prepare_offered_sends(library);
    const bool redirected =
        redirect_ucp_calls({replaced_call<tag_send_nbx>("ucp_tag_send_nbx"),
                            replaced_call<send_or_pack<false>>("ucp_tag_send_nb"),
                            replaced_call<send_or_pack<true>>("ucp_tag_send_sync_nb"),
                            replaced_call<tag_recv_nbx>("ucp_tag_recv_nbx"),
                            replaced_call<tag_recv_nb>("ucp_tag_recv_nb"),
                            replaced_call<tag_msg_recv_nb>("ucp_tag_msg_recv_nb"),
                            replaced_call<request_test>("ucp_request_test"),
                            replaced_call<request_free>("ucp_request_free"),
                            replaced_call<dt_create_generic>("ucp_dt_create_generic"),
                            replaced_call<dt_destroy>("ucp_dt_destroy")},
                           redirection, {"mca_pml_ucx.so", "libmpi.so", "libopen_mpi.so"});
    if (!redirected) {
        GPUSHM_LOG(debug,
                   "libucp lacks a function that gpushm needs: derived datatypes are packed in "
                   "pieces, in host memory");
    }
}

}  // namespace gpushm::openmpi
