// SPDX-License-Identifier: BSD-3-Clause
// An interface in terms that no UCX version changes; the adapter makes a uct_base_iface_t from it.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>

namespace gpushm::abi {

/** uct_ep_operation_t (src/uct/api/v2/uct_v2.h, UCX 1.13 to 1.23), as far as gpushm has the
 * operations. `other` also if UCX names none. */
enum class Operation : int {
    am_short,
    am_bcopy,
    am_zcopy,
    put_short,
    put_bcopy,
    put_zcopy,
    get_short,
    get_bcopy,
    get_zcopy,
    other
};

/** The expected cost of an operation, in seconds and bytes per second. */
struct PerfEstimate {
    Operation operation;
    ucs_memory_type_t local_memory_type;   // may be UCS_MEMORY_TYPE_UNKNOWN, which is no index
    ucs_memory_type_t remote_memory_type;  // may be UCS_MEMORY_TYPE_UNKNOWN
    double send_pre_overhead;
    double send_post_overhead;
    double recv_overhead;
    double bandwidth_dedicated;
    double bandwidth_shared;
    double latency;
};

/** The internal operations of an interface. */
struct IfaceCallbacks {
    /** Corrects UCX's base estimate, which is made from iface_query. */
    void (*estimate_perf)(uct_iface_h iface, PerfEstimate &estimate);
    /** `iface_addr` is null if UCX asks about the device alone. The lengths are 0 before UCX 1.18,
     * which does not report them. */
    bool (*is_reachable)(uct_iface_h iface, const void *device_addr, size_t device_addr_length,
                         const void *iface_addr, size_t iface_addr_length);
    /** Whether an endpoint leads to the interface of these addresses. */
    bool (*is_connected)(uct_ep_h ep, const void *device_addr, const void *iface_addr);
};

/** The first member of every interface of gpushm. UCX takes it for a uct_base_iface_t. */
struct Iface {
    uct_iface_t super;
    unsigned char base_iface[1280 - sizeof(uct_iface_t)];
    const IfaceCallbacks *callbacks;  // set by iface_init
    const int *log_level;             // UCX's ucs_log_level_t, which may change; set by iface_init
};

/** Runs UCX's constructor of uct_base_iface_t. UCS_ERR_INVALID_PARAM, logged as an error, if the
 * parameters ask for an impossible alignment of messages (am_alignment, am_align_offset). `ops` has
 * all operations but iface_is_reachable, iface_progress_enable and iface_progress_disable, which
 * are the adapter's. `ops` and `callbacks` must outlive the interface. */
ucs_status_t iface_init(Iface *iface, uct_iface_ops_t *ops, const IfaceCallbacks *callbacks,
                        uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
                        const uct_iface_config_t *config);
/** Stops UCX from polling the interface, and runs UCX's destructor of uct_base_iface_t. */
void iface_cleanup(Iface *iface);

/** Calls the handler of a received active message, like uct_iface_invoke_am of UCX
 * (src/uct/base/uct_iface.h). */
ucs_status_t invoke_am(Iface *iface, uint8_t id, void *data, size_t length, unsigned flags);

/** Whether UCX logs each message (UCX_LOG_LEVEL=data). */
inline bool traces_messages(const Iface *iface) {
    return *iface->log_level >= static_cast<int>(UCS_LOG_LEVEL_TRACE_DATA);
}

/** Logs a message. The interface's tracer (uct_iface_set_am_tracer) gets the first `length` of its
 * `total` bytes, which the CPU must be able to read. invoke_am() logs messages that are received.
 */
void trace_am(Iface *iface, uct_am_trace_type_t type, uint8_t id, const void *data, size_t length,
              size_t total);

/** Logs a transfer of `length` bytes. */
void trace_transfer(const char *operation, size_t length);

/** Fills the fields that uct_base_iface_query fills, and those that UCX 1.22 added. */
void iface_query_defaults(Iface *iface, uct_iface_attr_t *attributes);

}  // namespace gpushm::abi
