// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/memory_copy_interface.hpp"

#include "core/base/log.hpp"
#include "core/base/process.hpp"
#include "core/base/unique_fd.hpp"
#include "core/copy/copy_any.hpp"
#include "uct_gpushm/abi/abi.hpp"
#include "uct_gpushm/common_ops.hpp"
#include "uct_gpushm/status.hpp"
#include "uct_gpushm/ucx_callback.hpp"

#include <sys/eventfd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>

namespace gpushm::uct {
namespace {

/** A zero-copy operation, or a flush that waits for the operations before it. */
struct PendingCopy {
    CopyTicket ticket;
    Completion completion;
};

struct CopyInterface {
    abi::Iface super;
    uct_worker_h worker;
    CopyEngine engine;
    std::deque<PendingCopy> pending;  // completed in this order
    // Never signalled: event_arm refuses to let the worker sleep while a copy is in progress. UCP
    // wants a descriptor from every interface of a worker that may sleep.
    UniqueFd event_fd;
};

CopyInterface *self(uct_iface_h iface) {
    return reinterpret_cast<CopyInterface *>(iface);
}

// ---------------------------------------------------------------- copies

void *pointer(uint64_t address) {
    return reinterpret_cast<void *>(address);
}

void trace(uct_ep_h ep, const char *operation, size_t length) {
    if (__builtin_expect(abi::traces_messages(&self(ep->iface)->super), false)) {
        abi::trace_transfer(operation, length);
    }
}

ucs_status_t put_short(uct_ep_h ep, const void *buffer, unsigned length, uint64_t remote_addr,
                       uct_rkey_t) {
    trace(ep, "put_short", length);
    return to_ucs(copy_any(pointer(remote_addr), buffer, length));
}

ucs_status_t get_short(uct_ep_h ep, void *buffer, unsigned length, uint64_t remote_addr,
                       uct_rkey_t) {
    trace(ep, "get_short", length);
    return to_ucs(copy_any(buffer, pointer(remote_addr), length));
}

/** Completes in a later progress(), even if the copy is complete at once: UCP 1.13 with
 * UCX_PROTO_ENABLE=y fails if a copy completes inside of the call
 * (ucp_proto_rndv_put_mtype_copy_progress, src/ucp/rndv/rndv_put.c). */
ucs_status_t start_copy(uct_ep_h ep, const char *operation, void *destination, const void *source,
                        size_t length, uct_completion_t *completion) {
    trace(ep, operation, length);
    CopyInterface *copy = self(ep->iface);
    copy->pending.push_back({CopyTicket(), to_core(completion)});
    Status status = Status::invalid;
    const bool tried = as_possible([&] {
        status = start_any(copy->engine, destination, source, length, &copy->pending.back().ticket);
    });
    if (!tried || (status != Status::ok && status != Status::in_progress)) {
        copy->pending.pop_back();
        return tried ? to_ucs(status) : UCS_ERR_NO_MEMORY;
    }
    return UCS_INPROGRESS;
}

ucs_status_t put_zcopy(uct_ep_h ep, const uct_iov_t *iov, size_t iovcnt, uint64_t remote_addr,
                       uct_rkey_t, uct_completion_t *completion) {
    return iovcnt == 0 ? UCS_OK
                       : start_copy(ep, "put_zcopy", pointer(remote_addr), iov->buffer,
                                    iov->length * iov->count, completion);
}

ucs_status_t get_zcopy(uct_ep_h ep, const uct_iov_t *iov, size_t iovcnt, uint64_t remote_addr,
                       uct_rkey_t, uct_completion_t *completion) {
    return iovcnt == 0 ? UCS_OK
                       : start_copy(ep, "get_zcopy", iov->buffer, pointer(remote_addr),
                                    iov->length * iov->count, completion);
}

unsigned progress(uct_iface_h iface) {
    CopyInterface *copy = self(iface);
    unsigned count = copy->engine.progress();
    while (!copy->pending.empty()) {
        const Status status = copy->engine.poll(&copy->pending.front().ticket);
        if (status == Status::in_progress) {
            break;
        }
        // The completion may start another copy.
        const Completion completion = copy->pending.front().completion;
        copy->pending.pop_front();
        if (completion.function != nullptr) {
            completion.function(completion.argument, status);
        }
        ++count;
    }
    return count;
}

ucs_status_t flush(CopyInterface *copy, uct_completion_t *completion) {
    if (copy->pending.empty()) {
        return UCS_OK;
    }
    if (completion != nullptr) {
        copy->pending.push_back({CopyTicket(), to_core(completion)});
    }
    return UCS_INPROGRESS;
}

// ---------------------------------------------------------------- endpoints

ucs_status_t ep_create(const uct_ep_params_t *params, uct_ep_h *ep) {
    *ep = new uct_ep{params->iface};
    return UCS_OK;
}

void ep_destroy(uct_ep_h ep) {
    delete ep;
}

// There is always room, so no request waits.
ucs_status_t ep_pending_add(uct_ep_h, uct_pending_req_t *, unsigned) {
    return UCS_ERR_BUSY;
}
void ep_pending_purge(uct_ep_h, uct_pending_purge_callback_t, void *) {}
ucs_status_t ep_flush(uct_ep_h ep, unsigned, uct_completion_t *completion) {
    return flush(self(ep->iface), completion);
}
ucs_status_t ep_fence(uct_ep_h, unsigned) {
    return UCS_OK;
}
ucs_status_t ep_check(uct_ep_h, unsigned, uct_completion_t *) {
    return UCS_OK;
}

// ---------------------------------------------------------------- interface

ucs_status_t iface_query(uct_iface_h iface, uct_iface_attr_t *attr) {
    query_common(&self(iface)->super, attr);
    attr->cap.flags = UCT_IFACE_FLAG_CONNECT_TO_IFACE | UCT_IFACE_FLAG_PUT_SHORT |
                      UCT_IFACE_FLAG_GET_SHORT | UCT_IFACE_FLAG_PUT_ZCOPY |
                      UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_PENDING |
                      UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE;
    // UCP requires these of both lanes of a worker that sleeps (ucp_worker_mem_type_eps_create).
    attr->cap.event_flags =
        UCT_IFACE_FLAG_EVENT_SEND_COMP | UCT_IFACE_FLAG_EVENT_RECV | UCT_IFACE_FLAG_EVENT_FD;
    attr->cap.put.max_short = UINT_MAX;
    attr->cap.get.max_short = UINT_MAX;
    // One copy between pinned memory and a GPU: doc/decisions/uct_gpushm-cost-model.md.
    attr->latency.c = 2e-6;
    attr->overhead = 4e-6;
    attr->bandwidth.dedicated = 50e9;
    return UCS_OK;
}

// The reported bandwidth of copies between a GPU and UCP's own bounce buffers (rendezvous
// fragments). It is a little less than memory bandwidth, so that UCP leaves GPU buffers to
// transfers of gpushm, which overlap both copies. Over a network UCP has no other choice and uses
// them in any case.
constexpr double kBounceBandwidth = 5e9;

void estimate_perf(uct_iface_h, abi::PerfEstimate &estimate) {
    // UCP asserts that a copy has no receiver (ucp_proto_init_buffer_copy_time).
    estimate.recv_overhead = 0;
    if (estimate.operation == abi::Operation::put_zcopy ||
        estimate.operation == abi::Operation::get_zcopy) {
        estimate.bandwidth_dedicated = kBounceBandwidth;
    }
}

ucs_status_t get_address(uct_iface_h, uct_iface_addr_t *addr) {
    InterfaceAddress address = {InterfaceKind::memory_copy, {}, {}};
    address.mailbox.cookie = process_cookie();
    memcpy(addr, &address, sizeof(address));
    return UCS_OK;
}

bool is_reachable(uct_iface_h iface, const void *device_addr, size_t device_addr_length,
                  const void *iface_addr, size_t iface_addr_length) {
    InterfaceAddress peer;
    // UCP would choose cuda_copy as well, but it allows no more lanes than its own components have
    // (src/ucp/core/ucp_ep.c; asserted by ucp_worker_mem_type_eps_create from UCX 1.21 on).
    if (abi::has_cuda_copy(self(iface)->worker) ||
        !same_node(InterfaceKind::memory_copy, device_addr, device_addr_length)) {
        return false;
    }
    if (iface_addr == nullptr) {
        return true;
    }
    return read_interface_address(InterfaceKind::memory_copy, iface_addr, iface_addr_length,
                                  &peer) &&
           peer.mailbox.cookie == process_cookie();
}

/** Every endpoint leads to this process. */
bool is_connected(uct_ep_h ep, const void *device_addr, const void *iface_addr) {
    return iface_addr != nullptr && is_reachable(ep->iface, device_addr, 0, iface_addr, 0);
}

ucs_status_t iface_flush(uct_iface_h iface, unsigned, uct_completion_t *completion) {
    return flush(self(iface), completion);
}
ucs_status_t iface_fence(uct_iface_h, unsigned) {
    return UCS_OK;
}

ucs_status_t event_fd_get(uct_iface_h iface, int *fd) {
    CopyInterface *copy = self(iface);
    if (!copy->event_fd) {
        copy->event_fd = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
        if (!copy->event_fd) {
            GPUSHM_LOG(error,
                       "cannot create an event descriptor (%s): raise the limit of open files "
                       "(ulimit -n)",
                       strerror(errno));
        }
    }
    *fd = copy->event_fd.get();
    return copy->event_fd ? UCS_OK : UCS_ERR_IO_ERROR;
}

ucs_status_t event_arm(uct_iface_h iface, unsigned) {
    return self(iface)->pending.empty() ? UCS_OK : UCS_ERR_BUSY;
}

void close(uct_iface_h handle) {
    CopyInterface *copy = self(handle);
    abi::iface_cleanup(&copy->super);
    delete copy;
}

uct_iface_ops_t make_ops() {
    uct_iface_ops_t ops = {};
    ops.ep_put_short = ucx_callback<put_short>;
    ops.ep_get_short = ucx_callback<get_short>;
    ops.ep_put_zcopy = ucx_callback<put_zcopy>;
    ops.ep_get_zcopy = ucx_callback<get_zcopy>;
    ops.ep_pending_add = ucx_callback<ep_pending_add>;
    ops.ep_pending_purge = ucx_callback<ep_pending_purge>;
    ops.ep_flush = ucx_callback<ep_flush>;
    ops.ep_fence = ucx_callback<ep_fence>;
    ops.ep_check = ucx_callback<ep_check>;
    ops.ep_create = ucx_callback<ep_create>;
    ops.ep_destroy = ucx_callback<ep_destroy>;
    ops.iface_flush = ucx_callback<iface_flush>;
    ops.iface_fence = ucx_callback<iface_fence>;
    ops.iface_progress = ucx_callback<progress>;
    ops.iface_event_fd_get = ucx_callback<event_fd_get>;
    ops.iface_event_arm = ucx_callback<event_arm>;
    ops.iface_close = ucx_callback<close>;
    ops.iface_query = ucx_callback<iface_query>;
    ops.iface_get_device_address = ucx_callback<get_device_address<InterfaceKind::memory_copy>>;
    ops.iface_get_address = ucx_callback<get_address>;
    return ops;
}

const abi::IfaceCallbacks callbacks = {estimate_perf, is_reachable, is_connected};

}  // namespace

ucs_status_t open_memory_copy_interface(uct_md_h md, uct_worker_h worker,
                                        const uct_iface_params_t *params,
                                        const uct_iface_config_t *config, uct_iface_h *iface) {
    static uct_iface_ops_t ops = make_ops();
    auto *copy = new CopyInterface{};
    copy->worker = worker;
    const ucs_status_t status =
        abi::iface_init(&copy->super, &ops, &callbacks, md, worker, params, config);
    if (status != UCS_OK) {
        delete copy;
        return status;
    }
    *iface = &copy->super.super;
    return UCS_OK;
}

}  // namespace gpushm::uct
