// SPDX-License-Identifier: BSD-3-Clause
// UCX's internals as the transport sees them: types that no UCX version changes. All code that
// depends on the layouts of the running UCX is behind these declarations, in this folder.
#pragma once

#include "uct_gpushm/abi/neutral_component.hpp"
#include "uct_gpushm/abi/neutral_domain.hpp"
#include "uct_gpushm/abi/neutral_iface.hpp"
#include "uct_gpushm/abi/served_versions.hpp"

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <functional>
namespace gpushm::abi {

/** Functions that libuct, libucs and libucm export but that some version's public headers lack.
 * They are looked up with dlsym in the libraries that load the plugin. So the plugin has no
 * DT_NEEDED on UCX, and never brings a second UCX into a process. */
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

/** An atomic operation that UCP lets the CPU of the target do (ucp_atomic_req_hdr_t,
 * src/ucp/rma/rma.h, UCX 1.13 to 1.23). */
struct AtomicRequest {
    void *address;
    size_t length;  // bytes of the operand: 4 or 8
};

/** Runs UCP's own handler of a request, with `address` in place of the requested one. */
using RunAtomicAt = std::function<void(void *address)>;

/** Makes UCP call `serve` before it does an atomic operation with the CPU, which it then does only
 * if that returns false. It is called in threads that progress a worker. Call this before workers
 * are created. False if this UCP does not export its handlers. */
bool intercept_atomics(bool (*serve)(const AtomicRequest &request, const RunAtomicAt &run_at));

/** Notices from now on when UCP packs a remote key for the program (ucp_rkey_pack, ucp_memh_pack).
 * With such a key peers access memory without a message of this process; UCP sends its own keys
 * with messages. False if the functions cannot be watched, for example in a program that uses UCT
 * alone. Thread safe. */
bool watch_key_packing();

/** Whether this thread is packing a remote key for the program. */
bool packs_for_program();

/** Tells UCX that GPU memory was freed, like UCX's own hooks for CUDA. UCP then forgets its
 * registrations there. The caller must hold no lock of UCX. */
void report_memory_freed(void *address, size_t length, ucs_memory_type_t mem_type);

/** Calls `callback` before host memory is unmapped or its pages are discarded, from now on until
 * the process ends. It runs in the thread that unmaps, perhaps inside of malloc or free: it must
 * neither allocate nor free memory, nor wait for a thread that does. False if libucm sees no such
 * events (UCX_MEM_EVENTS=n). */
bool subscribe_unmap(void (*callback)(void *address, size_t length));

/** Whether libucm of the running UCX has a module that watches GPU memory, because UCX was built
 * with CUDA. That has then changed the functions of the driver that it changes: this makes it do
 * so. */
bool ucx_watches_cuda();

/** Makes `function` begin with a jump to `hook`. A call of `*original` runs the function as it was.
 * False, and nothing is changed, if neither gpushm nor libucm of the running UCX can do that.
 * Thread safe. */
bool patch_function(void *function, void *hook, const char *name, void **original);

/** Looks for cuda_copy, UCX's own transport between memory types, in a UCX that was built with
 * CUDA. True if cuda_copy has found a GPU: it answers from now on which memory type an address has,
 * and has_cuda_copy() knows its interfaces. Call it when a domain is opened. Later calls only give
 * the answer. */
bool find_cuda_copy();

/** Whether the worker has an interface of cuda_copy. UCP opens interfaces one after the other: call
 * it when an interface is used, not when it is opened. */
bool has_cuda_copy(uct_worker_h worker);

/** Where a device is on the PCI bus: ucs_sys_bus_id_t (src/ucs/sys/topo/base/topo.h, UCX 1.13
 * to 1.23). */
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
