// SPDX-License-Identifier: BSD-3-Clause
// What the transport sees of UCX's internals: version-neutral types. Everything that depends on the
// running UCX's layouts is behind these declarations, in this folder.
#pragma once

#include <uct/api/uct.h>
#include <uct/api/tl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpushm::abi {

/** A UCX release; compared exactly, an unknown minor has no layout. */
struct Version {
    unsigned major;
    unsigned minor;
    unsigned release;
};

// ---------------------------------------------------------------- memory domain

/** What a memory domain says of itself; everything unset is "none". Memory types are bit masks of
 * UCS_BIT(ucs_memory_type_t). cache_mem_types is always reported equal to reg_mem_types (UCX >=
 * 1.16 asserts it). */
struct MdAttributes {
    /** UCT_MD_FLAG_*; the adapter masks what a version does not know, and adds INVALIDATE_RMA and
     * INVALIDATE_AMO to INVALIDATE where they exist. */
    uint64_t flags = 0;
    uint64_t reg_mem_types = 0;
    uint64_t access_mem_types = 0;
    uint64_t detect_mem_types = 0;
    uint64_t alloc_mem_types = 0;
    double reg_overhead = 0;  // seconds that a registration takes
};

/** The allocation in which an address lies; dmabuf is never reported. */
struct MemoryAttributes {
    ucs_memory_type_t mem_type = UCS_MEMORY_TYPE_HOST;
    ucs_sys_device_t sys_dev = UCS_SYS_DEVICE_ID_UNKNOWN;
    void *base_address = nullptr;
    size_t alloc_length = 0;
};

/** A memory domain. UCX may call every method from several threads at once. Methods that a domain
 * does not offer keep the default, UCS_ERR_UNSUPPORTED. */
class MemoryDomain {
public:
    virtual ~MemoryDomain() = default;
    virtual void query(MdAttributes &attributes) const = 0;
    /** Bytes of a key, at most 254; 0: the domain has no keys. Asked for each message. */
    virtual size_t rkey_packed_size() const { return 0; }
    virtual ucs_status_t mem_alloc(size_t &length, void *&address, ucs_memory_type_t mem_type,
                                   uct_mem_h &memh);
    virtual ucs_status_t mem_free(uct_mem_h memh);
    virtual ucs_status_t mem_reg(void *address, size_t length, uct_mem_h &memh) = 0;
    /** `invalidates`: peers may have a key of it that they use, and are not to see what lies there
     * afterwards. The adapter invokes the completion then. */
    virtual ucs_status_t mem_dereg(uct_mem_h memh, bool invalidates) = 0;
    /** UCS_ERR_INVALID_ADDR for memory that is not the domain's. */
    virtual ucs_status_t mem_query(const void *address, size_t length,
                                   MemoryAttributes &attributes);
    /** Writes exactly rkey_packed_size() bytes, at an unaligned address; not called when it is 0.
     * [address, address + length) is what the key is for, a part of what is registered; null: UCX
     * does not say (before 1.16). */
    virtual ucs_status_t mkey_pack(uct_mem_h memh, const void *address, size_t length,
                                   void *rkey_buffer) = 0;
};

/** The domain behind a handle that md_open of our component made. */
MemoryDomain &memory_domain(uct_md_h md);

// ---------------------------------------------------------------- interface

/** uct_ep_operation_t as far as gpushm has it (not in the public headers; the same in every
 * version); `other` also where UCX names none. */
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

/** What an operation is expected to cost; seconds, bytes per second. */
struct PerfEstimate {
    Operation operation;
    ucs_memory_type_t local_memory_type;   // may be UCS_MEMORY_TYPE_UNKNOWN: never index by it
    ucs_memory_type_t remote_memory_type;  // the same
    double send_pre_overhead;
    double send_post_overhead;
    double recv_overhead;
    double bandwidth_dedicated;
    double bandwidth_shared;
    double latency;
};

/** The internal operations of an interface, in terms that no UCX version changes. */
struct IfaceCallbacks {
    /** Receives UCX's base estimate (from iface_query) and corrects it. */
    void (*estimate_perf)(uct_iface_h iface, PerfEstimate &estimate);
    /** iface_addr is null when UCX asks about the device alone. Lengths are known from UCX 1.18 on,
     * otherwise 0. */
    bool (*is_reachable)(uct_iface_h iface, const void *device_addr, size_t device_addr_length,
                         const void *iface_addr, size_t iface_addr_length);
    /** Whether an endpoint leads to the interface of these addresses. */
    bool (*is_connected)(uct_ep_h ep, const void *device_addr, const void *iface_addr);
};

/** First member of every interface of ours: stands where UCX expects its uct_base_iface_t. */
struct Iface {
    uct_iface_t super;
    unsigned char base_iface[1280 - sizeof(uct_iface_t)];
    const IfaceCallbacks *callbacks;  // set by iface_init, as is
    const int *log_level;             // a ucs_log_level_t: that of UCX, which may change
};

/** Runs UCX's constructor of uct_base_iface_t. UCS_ERR_INVALID_PARAM, with an error in the log,
 * where the parameters ask for messages at impossible addresses (am_alignment, am_align_offset).
 * `ops` must outlive the interface and be filled but for iface_is_reachable, which the adapter
 * serves through `callbacks`. */
ucs_status_t iface_init(Iface *iface, uct_iface_ops_t *ops, const IfaceCallbacks *callbacks,
                        uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
                        const uct_iface_config_t *config);
void iface_cleanup(Iface *iface);

/** Hands a received active message to its handler, as uct_iface_invoke_am of UCX
 * (src/uct/base/uct_iface.h) does. */
ucs_status_t invoke_am(Iface *iface, uint8_t id, void *data, size_t length, unsigned flags);

/** Whether each message is to be logged (UCX_LOG_LEVEL=data). */
inline bool traces_messages(const Iface *iface) {
    return *iface->log_level >= static_cast<int>(UCS_LOG_LEVEL_TRACE_DATA);
}

/** Writes the line of a message that is sent, with what the interface's tracer
 * (uct_iface_set_am_tracer) makes of its first `length` bytes, which the CPU can read; `total` is
 * its length. invoke_am() does so for those that are received. */
void trace_sent_am(Iface *iface, uint8_t id, const void *data, size_t length, size_t total);

/** The same for a transfer. */
void trace_transfer(const char *operation, size_t length);

/** Fills what uct_base_iface_query fills, and what UCX >= 1.22 added. */
void iface_query_defaults(Iface *iface, uct_iface_attr_t *attributes);

// ---------------------------------------------------------------- options

enum class OptionType { boolean, memory_size, unsigned_integer, ternary_auto, time };

/** One UCX_GPUSHM_* option; `offset` is into the configuration struct, which begins with
 * IfaceConfigHead. boolean and ternary_auto are an int there (ternary: 0 no, 1 yes, 2 try, 3 auto,
 * as UCS_NO, UCS_YES, UCS_TRY, UCS_AUTO), memory_size a size_t, unsigned_integer an unsigned, time
 * a double in seconds. */
struct Option {
    const char *name;
    const char *default_value;
    const char *documentation;
    OptionType type;
    size_t offset;
};

/** Stands where UCX expects its uct_iface_config_t. */
struct IfaceConfigHead {
    unsigned char uct_iface_config[32];
};

// ---------------------------------------------------------------- component

/** All that makes our component, given once to register_component; must live for ever. */
struct ComponentDescription {
    const char *name;
    /** No name at all where the component has nothing to offer; never fails. */
    std::vector<std::string> (*md_names)();
    /** Null, with a line in the log, where the domain cannot be opened. */
    std::unique_ptr<MemoryDomain> (*md_open)(const std::string &md_name);
    /** Given what mkey_pack of a domain with keys wrote, at an unaligned address. */
    ucs_status_t (*rkey_unpack)(const void *rkey_buffer, uct_rkey_t *rkey, void **handle);
    ucs_status_t (*rkey_release)(uct_rkey_t rkey, void *handle);

    const char *tl_name;
    /** The device of a domain: its name, or empty for none. */
    std::string (*device_name)(MemoryDomain &md);
    ucs_status_t (*iface_open)(uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
                               const uct_iface_config_t *config, uct_iface_h *iface);
    const char *config_prefix;  // "GPUSHM_"
    std::vector<Option> options;
    size_t config_size;
};

// ---------------------------------------------------------------- functions of the running UCX

/** Exported functions of the running libuct, libucs and libucm that the public headers of some
 * version lack; all looked up with dlsym in the very libraries that load us, so that the plugin
 * has no DT_NEEDED on UCX and never brings a second UCX into a process. */
struct Symbols {
    ucs_status_t (*handle_ep_error)(uct_iface_h iface, uct_ep_h ep, ucs_status_t status);
    ucs_status_t (*global_opts_set_value)(const char *name, const char *value);
    void **memtype_cache_global_instance;
    void (*memtype_cache_update)(const void *address, size_t size, int mem_type, int sys_dev,
                                 int mem_flags);
    void (*ucm_event_enter)();
    void (*ucm_event_leave)();
    void (*ucm_event_dispatch)(int event_type, void *event);
    // The next four may be null.
    ucs_status_t (*ucm_set_event_handler)(int events, int priority,
                                          void (*callback)(int event_type, void *event, void *arg),
                                          void *arg);
    ucs_status_t (*ucm_bistro_patch)(void *function, void *hook, const char *name, void **original,
                                     void **restore_point);
    const ucs_list_link_t *ucm_event_installer_list;
    ucs_status_t (*topo_find_device_by_bus_id)(const void *bus_id, ucs_sys_device_t *sys_dev);
    void (*log_dispatch)(const char *file, unsigned line, const char *function, int level,
                         const void *log_component_config, const char *format, ...);
};

/** Valid once the plugin is registered. */
const Symbols &symbols();
Version running_version();

/** What UCP asks the target of an atomic operation that no hardware does (ucp_atomic_req_hdr_t,
 * src/ucp/rma/rma.h, the same from UCX 1.13 on). */
struct AtomicRequest {
    void *address;
    size_t length;  // bytes of the operand: 4 or 8
};

/** Runs UCP's own handler of the request, with `address` in place of the one that was asked for. */
class AtomicHandler {
public:
    virtual void run_at(void *address) = 0;

protected:
    ~AtomicHandler() = default;
};

/** Has `is_foreign` asked before UCP does atomic operations by the CPU, and `serve` called where it
 * says yes. Both are called in threads that progress a worker. To be called before workers are
 * made; false where this UCP does not export its handlers. */
bool intercept_atomics(bool (*is_foreign)(const AtomicRequest &request),
                       void (*serve)(const AtomicRequest &request, AtomicHandler &handler));

/** Watches UCP while it packs a remote key for the program, by which peers access memory without a
 * message of this process; keys that UCP itself sends with a message are not meant. False when it
 * cannot be seen, in a program that uses UCT alone, for one. Thread safe. */
bool watch_key_packing();

/** Whether this thread packs such a key. */
bool packs_for_program();

/** Tells all of UCX that GPU memory was freed, as its own CUDA hooks do; UCP then forgets its
 * registrations there. Not to be called with a lock of UCX held. */
void report_memory_freed(void *address, size_t length, ucs_memory_type_t mem_type);

/** Has `callback` called before host memory is unmapped or its pages are given up, in the thread
 * that does it, perhaps inside of malloc or free: it must not allocate or free memory, or wait for
 * whoever does. For good. False when libucm sees no such events (UCX_MEM_EVENTS=n). */
bool subscribe_unmap(void (*callback)(void *address, size_t length));

/** Whether libucm of the running UCX watches allocations of GPU memory itself: it was built with
 * CUDA. It is known once libucm has loaded its modules, which subscribe_unmap() makes it do. Then
 * its memory-type cache can be believed, and the functions of the driver are its to patch. */
bool ucx_watches_cuda();

/** Makes `function` begin with a jump to `hook`; `*original` then calls what it did. False, and
 * nothing is changed, when libucm of the running UCX cannot. Thread safe. */
bool patch_function(void *function, void *hook, const char *name, void **original);

/** Looks for cuda_copy, the transport between memory kinds of a UCX that was built with CUDA. Where
 * it is and found a GPU, our domains pass questions for the kind of memory on to it, and its
 * interfaces are noted from now on. Call it when a domain is opened; again does no harm. */
void look_for_cuda_copy();

/** Whether this worker uses cuda_copy. Interfaces are opened one after the other: ask when one is
 * used, not when it is opened. */
bool has_cuda_copy(uct_worker_h worker);

/** Where a device is on the PCI bus. */
struct PciAddress {
    uint16_t domain;
    uint8_t bus;
    uint8_t slot;
    uint8_t function;
};

/** The number under which the running UCX knows that device, or keeps it from now on;
 * UCS_SYS_DEVICE_ID_UNKNOWN when it has no more room. */
ucs_sys_device_t find_system_device(const PciAddress &address);

/** Writes one line to the log of the running UCX, at its levels (format as of printf); to stderr
 * before a UCX is known. */
void log_line(ucs_log_level_t level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** What the plugin registers. The transport DEFINES this function; the plugin's entry points
 * (entry.cpp), which UCX's plugin loader and our preload library call, call it. */
const ComponentDescription &component_description();

/** Chooses the layout of the running UCX, builds the component in it and registers it. False, with
 * one line that says what and what to do, when this UCX cannot be served (unknown version, built
 * with statistics); UCX then runs on without gpushm. `asking_code` is an address in the libucs,
 * libuct or libucp that wants the component; registering twice in one UCX does nothing. Called by
 * the entry points. */
bool register_component(const ComponentDescription &description, const void *asking_code);

}  // namespace gpushm::abi
