// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/shared_memory_ops.hpp"

#include "core/base/log.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/hooks/driver_hooks.hpp"
#include "core/hooks/system_call_watch.hpp"
#include "core/pinning/host_registration_cache.hpp"
#include "core/pinning/segment_table.hpp"
#include "core/reclaim/kernel_preload.hpp"
#include "core/standby/standby_registry.hpp"
#include "openmpi/settings/settings.hpp"
#include "uct_gpushm/common_ops.hpp"
#include "uct_gpushm/config.hpp"
#include "uct_gpushm/cost_model.hpp"
#include "uct_gpushm/endpoint_ops.hpp"
#include "uct_gpushm/shared_memory_interface.hpp"
#include "uct_gpushm/status.hpp"
#include "uct_gpushm/ucx_callback.hpp"

#include <sys/auxv.h>
#include <unistd.h>

#include <cstring>
#include <memory>

namespace gpushm::uct {
namespace {

SharedMemoryInterface *self(uct_iface_h iface) {
    return shared_memory_interface(iface);
}

// ---------------------------------------------------------------- properties

ucs_status_t iface_query(uct_iface_h iface, uct_iface_attr_t *attr) {
    query_common(&self(iface)->super, attr);
    attr->cap.flags = UCT_IFACE_FLAG_CONNECT_TO_IFACE | UCT_IFACE_FLAG_AM_SHORT |
                      UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_AM_ZCOPY | UCT_IFACE_FLAG_PUT_ZCOPY |
                      UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_CB_SYNC | UCT_IFACE_FLAG_PENDING |
                      UCT_IFACE_FLAG_EP_CHECK | UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE;
    if (self(iface)->port != nullptr) {
        // Without a port there is no descriptor. UCP fails the whole worker if an interface
        // promises one and has none (ucp_worker_iface_init, src/ucp/core/ucp_worker.c).
        attr->cap.event_flags =
            UCT_IFACE_FLAG_EVENT_SEND_COMP | UCT_IFACE_FLAG_EVENT_RECV | UCT_IFACE_FLAG_EVENT_FD;
    }
    attr->cap.am.max_short = Cell::kInlineBytes;
    attr->cap.am.max_bcopy = kSlotBytes;
    attr->cap.am.max_zcopy = kSlotBytes;
    attr->cap.am.max_hdr = kMaxHeader;
    attr->cap.am.max_iov = kMaxPieces;
    attr->cap.am.opt_zcopy_align = attr->cap.am.align_mtu = 1;
    // The latency and overhead of UCX's own shared memory (src/uct/sm/mm/base/mm_iface.c). A higher
    // bandwidth than its 12179 MB/s, and the priority, make UCP prefer this interface.
    attr->latency.c = 80e-9;
    attr->overhead = 10e-9;
    attr->bandwidth.dedicated = interface_bandwidth();
    attr->priority = 1;
    attr->dev_num_paths = device_paths();
    return UCS_OK;
}

void estimate_perf(uct_iface_h, abi::PerfEstimate &estimate) {
    estimate_shared_memory_cost(estimate);
}

ucs_status_t get_address(uct_iface_h iface, uct_iface_addr_t *addr) {
    InterfaceAddress address = {InterfaceKind::shared_memory, {}, {}};
    if (self(iface)->port != nullptr) {
        address.mailbox = self(iface)->port->address();
    }
    memcpy(addr, &address, sizeof(address));
    return UCS_OK;
}

/** UCX needs a connection that works in both directions. It ends the process when a reachable peer
 * cannot answer ("endpoint reconfiguration not supported yet", src/ucp/wireup/wireup.c). */
bool peers_can_answer() {
    if (Segment::peers_may_attach()) {
        return true;
    }
    const auto *const program = reinterpret_cast<const char *>(getauxval(AT_EXECFN));
    if (program != nullptr && access(program, R_OK) != 0) {
        GPUSHM_LOG_ONCE(warn,
                        "peers cannot open the memory of this process, because its user may not "
                        "read the program: chmod a+r %s; UCX uses other transports, without GPU "
                        "memory",
                        program);
    } else {
        GPUSHM_LOG_ONCE(
            warn,
            "peers cannot open the memory of this process, because its user was changed "
            "or it is not dumpable (PR_SET_DUMPABLE in prctl(2)): UCX uses other "
            "transports, without GPU memory; start it as the user that it runs as");
    }
    return false;
}

/** Connects: a peer is reported as reachable only after it has been reached. */
bool is_reachable(uct_iface_h iface, const void *device_addr, size_t device_addr_length,
                  const void *iface_addr, size_t iface_addr_length) {
    Port *port = self(iface)->port.get();
    if (port == nullptr ||
        !same_node(InterfaceKind::shared_memory, device_addr, device_addr_length)) {
        return false;
    }
    if (iface_addr == nullptr) {
        return true;
    }
    InterfaceAddress peer;
    if (!read_interface_address(InterfaceKind::shared_memory, iface_addr, iface_addr_length,
                                &peer) ||
        peer.mailbox.segment_fd < 0 || (peer.mailbox.pid != getpid() && !peers_can_answer())) {
        return false;
    }
    const char *why = "";
    const Connection *connection = port->connect(peer.mailbox, &why);
    if (connection == nullptr) {
        GPUSHM_LOG_ONCE(warn,
                        "process %d of this node cannot be reached (%s): UCX uses another "
                        "transport for it",
                        peer.mailbox.pid, why);
    }
    return connection != nullptr && !connection->failed();
}

bool is_connected(uct_ep_h ep, const void *device_addr, const void *iface_addr) {
    InterfaceAddress peer;
    return same_node(InterfaceKind::shared_memory, device_addr, 0) && iface_addr != nullptr &&
           read_interface_address(InterfaceKind::shared_memory, iface_addr, 0, &peer) &&
           peer.mailbox.cookie == reinterpret_cast<const Endpoint *>(ep)->connection->peer().cookie;
}

// ---------------------------------------------------------------- progress

unsigned progress(uct_iface_h handle) {
    SharedMemoryInterface *iface = self(handle);
    if (iface->port == nullptr) {
        return 0;
    }
    unsigned count = iface->port->progress();
    if (!iface->waiting.empty()) {
        count += iface->dispatch_pending();
    }
    return count;
}

ucs_status_t iface_flush(uct_iface_h handle, unsigned, uct_completion_t *completion) {
    if (completion != nullptr) {
        return UCS_ERR_UNSUPPORTED;  // as in UCX's own (src/uct/base/uct_iface.c,
                                     // uct_base_iface_flush)
    }
    const SharedMemoryInterface *iface = self(handle);
    const bool idle = iface->port == nullptr || (iface->port->idle() && iface->waiting.empty());
    return idle ? UCS_OK : UCS_INPROGRESS;
}

ucs_status_t iface_fence(uct_iface_h handle, unsigned) {
    for (Endpoint *ep : self(handle)->endpoints) {
        ep->fence();
    }
    return UCS_OK;
}

ucs_status_t event_fd_get(uct_iface_h handle, int *fd) {
    if (self(handle)->port == nullptr) {
        return UCS_ERR_NO_RESOURCE;
    }
    *fd = self(handle)->port->event_fd();
    return UCS_OK;
}

ucs_status_t event_arm(uct_iface_h handle, unsigned) {
    SharedMemoryInterface *iface = self(handle);
    // Nothing signals the end of GPU work or room in a peer's memory: both are polled.
    const bool armed = iface->port == nullptr || (iface->waiting.empty() && iface->port->arm());
    return armed ? UCS_OK : UCS_ERR_BUSY;
}

static_assert(kActiveMessageIds <= UCT_AM_ID_MAX, "as many handlers as an interface has");

void on_active_message(void *argument, uint8_t am_id, void *data, size_t length) {
    abi::invoke_am(&static_cast<SharedMemoryInterface *>(argument)->super, am_id, data, length, 0);
}

void on_connection_failed(void *argument, Connection &connection) {
    static_cast<SharedMemoryInterface *>(argument)->report_failure(connection);
}

// ---------------------------------------------------------------- life

void close(uct_iface_h handle) {
    SharedMemoryInterface *iface = self(handle);
    abi::iface_cleanup(&iface->super);
    delete iface;
}

uct_iface_ops_t make_ops() {
    uct_iface_ops_t ops = {};
    set_endpoint_ops(ops);
    ops.iface_flush = ucx_callback<iface_flush>;
    ops.iface_fence = ucx_callback<iface_fence>;
    ops.iface_progress = ucx_callback<progress>;
    ops.iface_event_fd_get = ucx_callback<event_fd_get>;
    ops.iface_event_arm = ucx_callback<event_arm>;
    ops.iface_close = ucx_callback<close>;
    ops.iface_query = ucx_callback<iface_query>;
    ops.iface_get_device_address = ucx_callback<get_device_address<InterfaceKind::shared_memory>>;
    ops.iface_get_address = ucx_callback<get_address>;
    return ops;
}

const abi::IfaceCallbacks callbacks = {estimate_perf, is_reachable, is_connected};

/** Page-locks the application's buffers, if gpushm sees all calls that unmap or discard memory. */
void enable_host_registration_cache(size_t limit_bytes) {
    static const bool watched =
        CudaDriver::get() != nullptr && abi::subscribe_unmap([](void *address, size_t length) {
            HostRegistrationCache::instance().invalidate(address, length);
        });
    HostRegistrationCache::instance().enable(
        watched && host_memory_is_watched() && system_calls_are_watched() ? limit_bytes : 0);
}

}  // namespace

ucs_status_t open_shared_memory_interface(uct_md_h md, uct_worker_h worker,
                                          const uct_iface_params_t *params,
                                          const uct_iface_config_t *config, uct_iface_h *handle) {
    static uct_iface_ops_t ops = make_ops();
    const auto &settings = *reinterpret_cast<const InterfaceConfig *>(config);
    auto iface = std::make_unique<SharedMemoryInterface>();
    SegmentTable::instance().set_pinning_enabled(settings.pin != 0);
    enable_host_registration_cache(settings.pin != 0 ? settings.host_pin_limit : 0);
    StandbyKernels::instance().configure(standby_config(settings));
    preload_kernels_everywhere();
    openmpi::set_limits(openmpi_limits(settings));
    iface->port =
        Port::create(port_config(settings), {iface.get(), on_active_message, on_connection_failed});
    // Last, so that no later failure has to undo it.
    const ucs_status_t status =
        abi::iface_init(&iface->super, &ops, &callbacks, md, worker, params, config);
    if (status == UCS_OK) {
        *handle = &iface.release()->super.super;
    }
    return status;
}

}  // namespace gpushm::uct
