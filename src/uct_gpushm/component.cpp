// SPDX-License-Identifier: BSD-3-Clause
// The component as UCX sees it: its domains, its transport and its settings.
#include "core/base/log.hpp"
#include "openmpi/setup/attachment.hpp"
#include "uct_gpushm/abi/abi.hpp"
#include "uct_gpushm/config.hpp"
#include "uct_gpushm/domains.hpp"
#include "uct_gpushm/memory_copy_interface.hpp"
#include "uct_gpushm/shared_memory_interface.hpp"

#include <cstddef>

namespace gpushm::uct {
namespace {

void log_to_ucx(LogLevel level, const char *, unsigned, const char *, const char *message) {
    switch (level) {
        case LogLevel::error:
            abi::log_line(UCS_LOG_LEVEL_ERROR, "gpushm: %s", message);
            break;
        case LogLevel::warn:
            abi::log_line(UCS_LOG_LEVEL_WARN, "gpushm: %s", message);
            break;
        case LogLevel::debug:
            abi::log_line(UCS_LOG_LEVEL_DEBUG, "gpushm: %s", message);
            break;
    }
}

std::string device_name(abi::MemoryDomain &domain) {
    return static_cast<Domain &>(domain).device_name();
}

ucs_status_t open_interface(uct_md_h md, uct_worker_h worker, const uct_iface_params_t *params,
                            const uct_iface_config_t *config, uct_iface_h *iface) {
    const auto &domain = static_cast<Domain &>(abi::memory_domain(md));
    if (domain.interface_kind() == InterfaceKind::memory_copy) {
        openmpi::attach();
    }
    return domain.interface_kind() == InterfaceKind::shared_memory
               ? open_shared_memory_interface(md, worker, params, config, iface)
               : open_memory_copy_interface(md, worker, params, config, iface);
}

std::vector<abi::Option> options() {
    using abi::OptionType;
    return {
        {"RING_SIZE", "8m",
         "Size of the staging ring for what goes to one other process and is not copied directly "
         "(by CMA\n"
         "or a mapping); made when first needed, of 32 KiB at least. 0 sends that in pieces of 32 "
         "KiB.",
         OptionType::memory_size, offsetof(InterfaceConfig, ring_size)},
        {"RING_LIMIT", "256m",
         "Memory of all staging rings of an interface together; each ring takes at most a quarter "
         "of\n"
         "what is left, and with nothing left messages go in pieces of 32 KiB.",
         OptionType::memory_size, offsetof(InterfaceConfig, ring_limit)},
        {"GPU_CHUNK", "1m",
         "Large messages from GPU memory pass the staging ring in pieces of this size, at most a\n"
         "quarter of the ring and 4 KiB at least.",
         OptionType::memory_size, offsetof(InterfaceConfig, gpu_chunk)},
        {"HOST_CHUNK", "128k",
         "Large messages from host memory pass the staging ring in pieces of this size, at most a\n"
         "quarter of the ring and 4 KiB at least; the pieces in flight should fit the cache that "
         "the processes share.",
         OptionType::memory_size, offsetof(InterfaceConfig, host_chunk)},
        {"MAILBOX_CELLS", "256",
         "Messages that can wait in a process's mailbox, a power of two of 16 to 65536; each takes "
         "32 KiB.",
         OptionType::unsigned_integer, offsetof(InterfaceConfig, mailbox_cells)},
        {"PIN", "y",
         "Page-lock shared memory (cuMemHostRegister) when a GPU first copies from or to it. "
         "Without,\n"
         "GPU copies are slower and not asynchronous. n also means UCX_GPUSHM_HOST_PIN_LIMIT=0.",
         OptionType::boolean, offsetof(InterfaceConfig, pin)},
        {"PEER_MAPPING", "y",
         "Map GPU memory of other processes (CUDA IPC, or descriptors of virtual memory "
         "management)\n"
         "where that is quicker than copying it through host memory.",
         OptionType::boolean, offsetof(InterfaceConfig, peer_mapping)},
        {"CMA", "y",
         "Let the kernel copy large messages between host buffers (process_vm_readv), both "
         "processes at\n"
         "once, where it allows that and that is not slower than through shared memory, which is "
         "measured;\n"
         "else they pass the staging ring.",
         OptionType::boolean, offsetof(InterfaceConfig, cma)},
        {"HOST_PIN_LIMIT", "4g",
         "How much host memory of each process of the application may be page-locked at a time, so "
         "that a\n"
         "GPU copies large messages straight from and to it; a buffer is locked when it is used "
         "repeatedly.\n"
         "0: none.",
         OptionType::memory_size, offsetof(InterfaceConfig, host_pin_limit)},
        {"OPENMPI", "y",
         "Make Open MPI's own functions work on GPU buffers, too: derived datatypes, reductions, "
         "files.\n"
         "Read from the environment only. n also keeps gpushm's component of Open MPI from having "
         "Open\n"
         "MPI send through UCX (gpushm-openmpi).",
         OptionType::boolean, offsetof(InterfaceConfig, openmpi)},
        {"OPENMPI_STAGING", "64k",
         "From this size on, messages of derived datatypes in device memory are gathered there as "
         "a whole.\n"
         "Collective operations of GPU memory go by way of host memory up to a part of it: with "
         "two ranks\n"
         "blocking reductions to 3/4, Allgather to 1/16 (both further with more ranks, to 128 "
         "KiB), Alltoall\n"
         "to 1/8. inf: derived datatypes and parts of reductions are never gathered in device "
         "memory, and these\n"
         "are parts of 128 KiB; 0: all are gathered, and no collective operation goes by way of "
         "host memory.",
         OptionType::memory_size, offsetof(InterfaceConfig, openmpi_staging)},
        {"OPENMPI_BUFFERED", "4k",
         "From this size on, MPI_Send of device memory may wait until the receive is posted, and "
         "is the\n"
         "quicker for it. 0: always; inf: never.",
         OptionType::memory_size, offsetof(InterfaceConfig, openmpi_buffered)},
        {"STANDBY", "auto",
         "Copy small messages by a kernel of gpushm's own that is already on the GPU when they "
         "come,\n"
         "in half the time that a copy of the driver takes. It is there only while the process "
         "waits\n"
         "for messages. auto or try: after several small messages, where the program is quicker "
         "with it;\n"
         "yes: from the first one on; no: never. On x86-64 only.",
         OptionType::ternary_auto, offsetof(InterfaceConfig, standby)},
        {"STANDBY_LIFE", "500us",
         "So long, at most, the standby kernel stays on the GPU at a time; 1 s at most. Where "
         "gpushm does not\n"
         "see the program's calls (UCX with CUDA of its own), those of other threads that wait for "
         "all work of\n"
         "the GPU take at most that much longer; elsewhere they send the kernel away.",
         OptionType::time, offsetof(InterfaceConfig, standby_life)},
        {"STANDBY_BEAT", "200us",
         "So soon after the process has stopped waiting for messages the standby kernel leaves; at "
         "once\n"
         "when the process calls cudaDeviceSynchronize, cudaFree and the like. Where gpushm does "
         "not\n"
         "see such calls (UCX with CUDA of its own), at most 2us; 1 s at most.",
         OptionType::time, offsetof(InterfaceConfig, standby_beat)},
    };
}

}  // namespace
}  // namespace gpushm::uct

namespace gpushm::abi {

const ComponentDescription &component_description() {
    static const ComponentDescription description = [] {
        set_log_sink(uct::log_to_ucx);
        ComponentDescription component = {};
        component.name = "gpushm";
        component.md_names = uct::domain_names;
        component.md_open = uct::open_domain;
        component.rkey_unpack = uct::unpack_rkey;
        component.rkey_release = uct::release_rkey;
        component.tl_name = "gpushm";
        component.device_name = uct::device_name;
        component.iface_open = uct::open_interface;
        component.config_prefix = "GPUSHM_";
        component.options = uct::options();
        component.config_size = sizeof(uct::InterfaceConfig);
        return component;
    }();
    return description;
}

}  // namespace gpushm::abi
