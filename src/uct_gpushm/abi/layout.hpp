// SPDX-License-Identifier: BSD-3-Clause
// The internals of one minor release of UCX as data: sizes, offsets and signatures. The adapters
// (component.cpp, memory_domain.cpp, iface.cpp) serve every release. Paths are those of UCX's
// sources.
#pragma once

#include "uct_gpushm/abi/struct_layout.hpp"

#include <uct/api/uct_def.h>

#include <cstddef>
#include <cstdint>

namespace gpushm::abi {

/** struct uct_component, src/uct/base/uct_component.h. */
enum class ComponentField {
    name,
    query_md_resources,
    md_open,
    cm_open,
    rkey_unpack,
    rkey_ptr,
    rkey_release,
    rkey_compare,
    md_config,
    cm_config,
    tl_list,
    list,
    flags,
    md_vfs_init,
    field_count
};

/** ucs_config_global_list_entry_t, src/ucs/config/parser.h. */
enum class ConfigEntryField { name, prefix, table, size, list, flags, field_count };

/** ucs_config_field_t with the ucs_config_parser_t in it, src/ucs/config/parser.h. */
enum class ConfigOptionField {
    name,
    dfl_value,
    doc,
    offset,
    parser_read,
    parser_write,
    parser_clone,
    parser_release,
    parser_help,
    parser_doc,
    parser_arg,
    field_count
};

/** uct_tl_t, src/uct/base/uct_iface.h. */
enum class TlField { name, query_devices, iface_open, config, list, field_count };

/** uct_md_ops_t, src/uct/base/uct_md.h. */
enum class MdOp {
    close,
    query,
    mem_alloc,
    mem_free,
    mem_advise,
    mem_reg,
    mem_dereg,
    mem_query,
    mkey_pack,
    mem_attach,
    is_sockaddr_accessible,
    detect_memory_type,
    mem_elem_pack,
    mem_elem_release,
    field_count
};

/** uct_iface_internal_ops_t, src/uct/base/uct_iface.h. */
enum class InternalOp {
    iface_query_v2,
    iface_estimate_perf,
    iface_vfs_refresh,
    iface_mem_element_pack,
    ep_query,
    ep_invalidate,
    ep_connect_to_ep_v2,
    iface_is_reachable_v2,
    ep_is_connected,
    ep_get_device_ep,
    ep_put_sgl_zcopy,
    ep_get_sgl_zcopy,
    ep_outstanding_purge,
    field_count
};

/** What uct_md_ops_t::query fills: uct_md_attr_t (src/uct/api/uct.h) in 1.13, uct_md_attr_v2_t
 * (src/uct/api/v2/uct_v2.h) since. */
enum class MdAttrField {
    field_mask,
    max_alloc,
    max_reg,
    flags,
    reg_mem_types,
    reg_nonblock_mem_types,
    cache_mem_types,
    gva_mem_types,
    detect_mem_types,
    alloc_mem_types,
    access_mem_types,
    dmabuf_mem_types,
    reg_cost,
    component_name,
    rkey_packed_size,
    local_cpus,
    exported_mkey_packed_size,
    global_id,
    reg_alignment,
    required_mem_flags,
    field_count
};

/** What uct_md_ops_t::mem_query fills: uct_md_mem_attr_t or uct_md_mem_attr_v2_t, behind its
 * field_mask. */
enum class MemAttrField {
    mem_type,
    sys_dev,
    base_address,
    alloc_length,
    dmabuf_fd,
    dmabuf_offset,
    mem_flags,
    field_count
};

/** uct_perf_attr_t, src/uct/api/v2/uct_v2.h, behind its field_mask. */
enum class PerfAttrField {
    operation,
    local_memory_type,
    remote_memory_type,
    local_sys_device,
    remote_sys_device,
    send_pre_overhead,
    send_post_overhead,
    recv_overhead,
    bandwidth,
    path_bandwidth,
    latency,
    max_inflight_eps,
    flags,
    field_count
};

/** uct_iface_is_reachable_params_t, src/uct/api/v2/uct_v2.h, behind its field_mask. */
enum class ReachableField {
    device_addr,
    iface_addr,
    info_string,
    info_string_length,
    scope,
    device_addr_length,
    iface_addr_length,
    field_count
};

/** Which of two signatures a callback has (uct_md_ops_t and uct_component_t). */
struct Signatures {
    bool mem_reg_takes_params;      // const uct_md_mem_reg_params_t *, before: unsigned flags
    bool mem_alloc_takes_sys_dev;   // ucs_sys_device_t before the flags
    bool mkey_pack_takes_address;   // address and length behind the memory handle
    bool rkey_unpack_takes_params;  // const uct_rkey_unpack_params_t * behind the buffer
};

/** Everything about one minor release of UCX 1. */
struct Layout {
    unsigned minor;
    StructLayout<ComponentField> component;
    StructLayout<ConfigEntryField> config_entry;
    StructLayout<ConfigOptionField> config_option;
    StructLayout<TlField> tl;
    StructLayout<MdOp> md_ops;
    StructLayout<InternalOp> internal_ops;
    StructLayout<MdAttrField> md_attr;
    StructLayout<MemAttrField> mem_attr;
    StructLayout<PerfAttrField> perf_attr;
    StructLayout<ReachableField> reachable;
    Signatures signatures;
    uint64_t md_flags;        // UCT_MD_FLAG_* that exist
    size_t iface_ctl_device;  // offset of uct_iface_attr_t::ctl_device
};

/** Unchanged from 1.13 to 1.23, in builds without statistics: uct_base_iface_t and
 * uct_iface_config, src/uct/base/uct_iface.h; uct_md_mem_dereg_params_t, src/uct/api/v2/uct_v2.h.
 */
inline constexpr size_t kBaseIfaceSize = 1280;
inline constexpr size_t kBaseIfaceInternalOps = 400;
inline constexpr size_t kBaseIfaceAm = 424;  // {callback, argument, flags} for each id
inline constexpr size_t kAmHandlerSize = 24;
inline constexpr size_t kAmHandlerArgument = 8;
inline constexpr size_t kBaseIfaceAmTracer =
    kBaseIfaceAm + UCT_AM_ID_MAX * kAmHandlerSize;  // {function, argument}
inline constexpr size_t kIfaceConfigSize = 32;
inline constexpr size_t kDeregFlags = 8;
inline constexpr size_t kDeregMemh = 16;
inline constexpr size_t kDeregCompletion = 24;
inline constexpr uint64_t kDeregFieldMemh = 1u << 0;
inline constexpr uint64_t kDeregFieldFlags = 1u << 1;
inline constexpr uint64_t kDeregFieldCompletion = 1u << 2;
inline constexpr unsigned kDeregFlagInvalidate = 1u << 0;

/** uct_ep_is_connected_params_t, src/uct/api/v2/uct_v2.h, unchanged from 1.16 to 1.23. */
inline constexpr size_t kConnectedDeviceAddr = 8;
inline constexpr size_t kConnectedIfaceAddr = 16;
inline constexpr uint64_t kConnectedFieldDeviceAddr = 1u << 0;
inline constexpr uint64_t kConnectedFieldIfaceAddr = 1u << 1;

/** At least the number of callbacks in a table of any release. gpushm's tables have this size, so
 * that a patch release that appends a callback finds a function there (the branch of 1.22 did so).
 */
inline constexpr size_t kMaxCallbacks = 32;

/** The layout of UCX major.minor; null: unknown. */
const Layout *find_layout(unsigned major, unsigned minor);

/** The layout of the first release that is known. */
const Layout &oldest_layout();

}  // namespace gpushm::abi
