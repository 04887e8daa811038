// SPDX-License-Identifier: BSD-3-Clause
// uct_base_iface_t: its construction, its internal operations, and the dispatch of active messages.
#include "uct_gpushm/abi/callbacks.hpp"
#include "uct_gpushm/abi/running.hpp"

#include <cstdio>

namespace gpushm::abi {
namespace {

static_assert(offsetof(Iface, callbacks) == kBaseIfaceSize);
static_assert(sizeof(uct_iface_t) == kBaseIfaceInternalOps);
static_assert(sizeof(IfaceConfigHead) == kIfaceConfigSize);

const IfaceCallbacks &callbacks(uct_iface_h iface) {
    return *reinterpret_cast<Iface *>(iface)->callbacks;
}

bool is_reachable(uct_iface_h iface, const void *device_addr, size_t device_addr_length,
                  const void *iface_addr, size_t iface_addr_length) {
    return guarded(
        [&] {
            return callbacks(iface).is_reachable(iface, device_addr, device_addr_length, iface_addr,
                                                 iface_addr_length);
        },
        false);
}

int is_reachable_v1(const uct_iface_h iface, const uct_device_addr_t *device_addr,
                    const uct_iface_addr_t *iface_addr) {
    return is_reachable(iface, device_addr, 0, iface_addr, 0);
}

int is_reachable_v2(const uct_iface_h iface, const void *params) {
    using F = ReachableField;
    const StructLayout<F> &fields = running().layout->reachable;
    const auto *device_addr = load_if_set<const void *>(params, fields, F::device_addr);
    if (device_addr == nullptr) {
        return 0;
    }
    if (is_reachable(iface, device_addr, load_if_set<size_t>(params, fields, F::device_addr_length),
                     load_if_set<const void *>(params, fields, F::iface_addr),
                     load_if_set<size_t>(params, fields, F::iface_addr_length))) {
        return 1;
    }
    if (auto *reason = load_if_set<char *>(params, fields, F::info_string)) {
        std::snprintf(reason, load_if_set<size_t>(params, fields, F::info_string_length),
                      "another node, user, or version of gpushm");
    }
    return 0;
}

int is_connected(const uct_ep_h ep, const void *params) {
    constexpr uint64_t kBoth = kConnectedFieldDeviceAddr | kConnectedFieldIfaceAddr;
    if ((load<uint64_t>(params, 0) & kBoth) != kBoth) {
        return 0;
    }
    return guarded(
        [&] {
            return callbacks(ep->iface).is_connected(
                ep, load<const void *>(params, kConnectedDeviceAddr),
                load<const void *>(params, kConnectedIfaceAddr));
        },
        false);
}

/** UCS_MEMORY_TYPE_UNKNOWN has another value in almost every release. */
ucs_memory_type_t neutral_memory_type(unsigned type) {
    return type <= UCS_MEMORY_TYPE_ROCM_MANAGED ? static_cast<ucs_memory_type_t>(type)
                                                : UCS_MEMORY_TYPE_UNKNOWN;
}

Operation neutral_operation(unsigned operation) {
    return operation < static_cast<unsigned>(Operation::other) ? static_cast<Operation>(operation)
                                                               : Operation::other;
}

struct PerfOutput {
    PerfAttrField field;
    size_t size;
};

constexpr PerfOutput kPerfOutputs[] = {
    {PerfAttrField::send_pre_overhead, sizeof(double)},
    {PerfAttrField::send_post_overhead, sizeof(double)},
    {PerfAttrField::recv_overhead, sizeof(double)},
    {PerfAttrField::bandwidth, sizeof(uct_ppn_bandwidth_t)},
    {PerfAttrField::path_bandwidth, sizeof(uct_ppn_bandwidth_t)},
    {PerfAttrField::latency, sizeof(ucs_linear_func_t)},
    {PerfAttrField::max_inflight_eps, sizeof(size_t)},
    {PerfAttrField::flags, sizeof(uint64_t)},
};

/** A uct_perf_attr_t of the running UCX in which all outputs are requested: UCX asks for some
 * fields, but the transport corrects the complete estimate. */
struct FullPerfAttr {
    const StructLayout<PerfAttrField> &fields = running().layout->perf_attr;
    alignas(16) unsigned char bytes[256] = {};

    FullPerfAttr() {
        uint64_t outputs = 0;
        for (const PerfOutput &output : kPerfOutputs) {
            outputs |= fields.mask_bit(output.field);
        }
        store(bytes, 0, outputs);
    }

    template <typename T>
    T get(PerfAttrField field) const {
        return load<T>(bytes, fields[field]);
    }
    template <typename T>
    void set(PerfAttrField field, const T &value) {
        store(bytes, fields, field, value);
    }
    /** Copies the outputs that UCX has asked for. */
    void copy_requested(void *perf_attr) const {
        const auto asked = load<uint64_t>(perf_attr, 0);
        for (const PerfOutput &output : kPerfOutputs) {
            if (asked & fields.mask_bit(output.field)) {
                const size_t offset = fields[output.field];
                std::memcpy(static_cast<unsigned char *>(perf_attr) + offset, bytes + offset,
                            output.size);
            }
        }
    }
};

/** The outputs in `full`, for the operation and memory types in UCX's `perf_attr`. */
PerfEstimate read_estimate(const FullPerfAttr &full, const void *perf_attr) {
    using F = PerfAttrField;
    const auto bandwidth = full.get<uct_ppn_bandwidth_t>(F::bandwidth);
    PerfEstimate estimate{};
    estimate.operation = neutral_operation(load_if_set(perf_attr, full.fields, F::operation, ~0u));
    estimate.local_memory_type =
        neutral_memory_type(load_if_set(perf_attr, full.fields, F::local_memory_type, ~0u));
    estimate.remote_memory_type =
        neutral_memory_type(load_if_set(perf_attr, full.fields, F::remote_memory_type, ~0u));
    estimate.send_pre_overhead = full.get<double>(F::send_pre_overhead);
    estimate.send_post_overhead = full.get<double>(F::send_post_overhead);
    estimate.recv_overhead = full.get<double>(F::recv_overhead);
    estimate.bandwidth_dedicated = bandwidth.dedicated;
    estimate.bandwidth_shared = bandwidth.shared;
    estimate.latency = full.get<ucs_linear_func_t>(F::latency).c;
    return estimate;
}

void write_estimate(const PerfEstimate &estimate, FullPerfAttr &full) {
    using F = PerfAttrField;
    const uct_ppn_bandwidth_t bandwidth{estimate.bandwidth_dedicated, estimate.bandwidth_shared};
    auto latency = full.get<ucs_linear_func_t>(F::latency);
    latency.c = estimate.latency;
    full.set(F::send_pre_overhead, estimate.send_pre_overhead);
    full.set(F::send_post_overhead, estimate.send_post_overhead);
    full.set(F::recv_overhead, estimate.recv_overhead);
    full.set(F::bandwidth, bandwidth);
    full.set(F::path_bandwidth, bandwidth);
    full.set(F::latency, latency);
}

ucs_status_t estimate_perf(uct_iface_h iface, void *perf_attr) {
    FullPerfAttr full;
    const ucs_status_t status = running().functions.base_iface_estimate_perf(iface, full.bytes);
    if (status != UCS_OK) {
        return status;
    }
    PerfEstimate estimate = read_estimate(full, perf_attr);
    callbacks(iface).estimate_perf(iface, estimate);
    write_estimate(estimate, full);
    full.copy_requested(perf_attr);
    return UCS_OK;
}

CallbackTable<InternalOp> build_internal_ops() {
    const Running &ucx = running();
    CallbackTable<InternalOp> table{ucx.layout->internal_ops};
    table.set(InternalOp::iface_estimate_perf, estimate_perf);
    table.set(InternalOp::iface_vfs_refresh, do_nothing);
    table.set(InternalOp::iface_is_reachable_v2, is_reachable_v2);
    table.set(InternalOp::ep_is_connected, is_connected);
    // If the layout has the callback, UCX exports its function: register_component has checked
    // that.
    if (ucx.functions.base_iface_query_v2 != nullptr) {
        table.set(InternalOp::iface_query_v2,
                  reinterpret_cast<AnyFunction>(ucx.functions.base_iface_query_v2));
    }
    return table;
}

void *internal_ops() {
    static CallbackTable<InternalOp> table = build_internal_ops();
    return table.data();
}

/** The checks of uct_iface_param_am_alignment (src/uct/base/uct_iface.c) and ucs_mpool_init. A
 * possible alignment needs no action: it is for data that the receiver may keep
 * (UCT_CB_PARAM_FLAG_DESC), which gpushm does not offer. */
bool alignment_makes_sense(const uct_iface_params_t &params) {
    if ((params.field_mask & UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT) == 0) {
        const bool has_offset = (params.field_mask & UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET) != 0;
        if (has_offset) {
            log_line(UCS_LOG_LEVEL_ERROR,
                     "gpushm: am_align_offset has no meaning without am_alignment: set both");
        }
        return !has_offset;
    }
    const size_t alignment = params.am_alignment;
    const bool is_power_of_two = alignment != 0 && (alignment & (alignment - 1)) == 0;
    if (!is_power_of_two) {
        log_line(UCS_LOG_LEVEL_ERROR, "gpushm: am_alignment is %zu: use a power of two", alignment);
    }
    return is_power_of_two;
}

/** The log level of the running UCX, which may change. */
const int *log_level() {
    static constexpr int kUnknown = UCS_LOG_LEVEL_ERROR;
    const void *options = running().global_opts;  // begins with the level
    return options != nullptr ? static_cast<const int *>(options) : &kUnknown;
}

}  // namespace

ucs_status_t iface_init(Iface *iface, uct_iface_ops_t *ops, const IfaceCallbacks *callbacks,
                        uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
                        const uct_iface_config_t *config) {
    const Functions &functions = running().functions;
    if (!alignment_makes_sense(*params)) {
        return UCS_ERR_INVALID_PARAM;
    }
    iface->callbacks = callbacks;
    iface->log_level = log_level();
    uct_iface_ops_t complete = *ops;  // UCX makes its own copy
    complete.iface_is_reachable = is_reachable_v1;
    complete.iface_progress_enable = functions.progress_enable;
    complete.iface_progress_disable = functions.progress_disable;
    int init_count = 1;  // like UCS_CLASS_INIT, src/ucs/type/class.h
    const ucs_status_t status =
        functions.base_iface_init(iface, functions.base_iface_class, &init_count, &complete,
                                  internal_ops(), md, worker, params, config);
    if (status != UCS_OK) {
        functions.class_cleanup(functions.base_iface_class, iface, init_count);
    }
    return status;
}

void iface_cleanup(Iface *iface) {
    const Functions &functions = running().functions;
    // UCP may close an interface that it still polls, and UCX logs callbacks that are left.
    functions.progress_disable(&iface->super, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    functions.class_cleanup(functions.base_iface_class, iface, -1);
}

ucs_status_t invoke_am(Iface *iface, uint8_t id, void *data, size_t length, unsigned flags) {
    if (__builtin_expect(traces_messages(iface), false)) {
        trace_am(iface, UCT_AM_TRACE_TYPE_RECV, id, data, length, length);
    }
    const size_t handler = kBaseIfaceAm + id * kAmHandlerSize;
    const auto callback = load<uct_am_callback_t>(iface, handler);
    return callback(load<void *>(iface, handler + kAmHandlerArgument), data, length, flags);
}

void iface_query_defaults(Iface *iface, uct_iface_attr_t *attributes) {
    const Running &ucx = running();
    ucx.functions.base_iface_query(iface, attributes);
    if (ucx.layout->iface_ctl_device != kAbsent) {
        store(attributes, ucx.layout->iface_ctl_device,
              static_cast<ucs_sys_device_t>(UCS_SYS_DEVICE_ID_UNKNOWN));
    }
}

}  // namespace gpushm::abi
