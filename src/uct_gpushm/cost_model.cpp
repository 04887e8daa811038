// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/cost_model.hpp"

#include "core/copy/cost_table.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

#include <strings.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

namespace gpushm::uct {
namespace {

// What a machine decides is in core/copy/cost_table.hpp; these constants follow from how UCP
// compares. doc/decisions/uct_gpushm-cost-model.md has the figures behind both. Bandwidths are
// bytes per second, times are seconds.

// More than four times that of cma and knem: UCP divides a transfer between all transports that
// have a fourth (UCX_MULTI_LANE_MAX_RATIO) or more of the best bandwidth.
constexpr double kHostTransferBandwidth = 63e9;

// A copy through pinned memory. More than a transfer between hosts, so that UCP adds no bounce
// buffer of its own.
constexpr double kHostGpuTransferBandwidth = 64e9;

// More than four times what cuda_ipc reports for any GPU (80 GB/s to 1.9 TB/s, which UCP divides by
// the processes of the node; UCX 1.13 to 1.23, src/uct/cuda/cuda_ipc/cuda_ipc_iface.c,
// uct_cuda_ipc_iface_get_bw()): a transfer that UCP divides needs two copies, and is done when the
// slower one is.
constexpr double kGpuTransferBandwidth = 1e13;
static_assert(kHostTransferBandwidth < kHostGpuTransferBandwidth &&
                  kHostGpuTransferBandwidth < kGpuTransferBandwidth,
              "UCP must not find a bounce buffer faster");

// More than a transfer costs, so that UCP chooses neither a zero-copy eager message of host memory,
// which is copied like am_bcopy after a registration, nor one of GPU memory, which it can fetch
// earlier (get_zcopy). UCX before 1.20 does not tell the two apart.
constexpr double kMessageBehindTransfer = 0.2e-6;

// Zero-copy begins at this / (1 / UCX_BCOPY_BW - 1 / bandwidth of the interface): above the size
// from which UCP uses rendezvous (UCX 1.13.1 src/ucp/core/ucp_ep.c,
// ucp_ep_config_get_zcopy_auto_thresh()).
constexpr double kFirstProtocolsRegistration = 6.8e-6;

// UCP takes a limit below zero for none, so it copies all host memory; nothing else changes. This
// is less than any time that UCP adds it to can show.
constexpr double kNoZeroCopy = -1e-12;

bool is_gpu_memory(ucs_memory_type_t type) {
    return type == UCS_MEMORY_TYPE_CUDA || type == UCS_MEMORY_TYPE_CUDA_MANAGED;
}

double host_transfer_start() {
    return CudaDriver::get() != nullptr ? kTransferCosts.host_transfer_beside_gpu
                                        : kTransferCosts.host_transfer_start;
}

void estimate_message(abi::PerfEstimate &estimate) {
    if (is_gpu_memory(estimate.local_memory_type)) {
        estimate.send_pre_overhead += kTransferCosts.gpu_copy_start;
        estimate.bandwidth_dedicated = kTransferCosts.gpu_eager_bandwidth;
    } else if (estimate.operation == abi::Operation::am_zcopy) {
        estimate.bandwidth_dedicated = kTransferCosts.host_copy_bandwidth;
        estimate.send_pre_overhead += host_transfer_start() + kMessageBehindTransfer;
    } else {
        estimate.bandwidth_dedicated = kTransferCosts.message_bandwidth;  // UCP adds the copies
    }
}

void estimate_transfer(abi::PerfEstimate &estimate) {
    const bool local_gpu = is_gpu_memory(estimate.local_memory_type);
    const bool remote_gpu = is_gpu_memory(estimate.remote_memory_type);
    // UCX before 1.19 does not report the remote memory type, which then counts as the local one,
    // as in UCP. UCX before 1.20 mostly does not report the local one either: it counts as host
    // memory.
    const bool remote_known = estimate.remote_memory_type == UCS_MEMORY_TYPE_HOST || remote_gpu;
    estimate.send_pre_overhead +=
        local_gpu || remote_gpu ? kTransferCosts.gpu_copy_start : host_transfer_start();
    if (local_gpu && (remote_gpu || !remote_known)) {
        estimate.bandwidth_dedicated = kGpuTransferBandwidth;
    } else {
        estimate.bandwidth_dedicated =
            local_gpu || remote_gpu ? kHostGpuTransferBandwidth : kHostTransferBandwidth;
    }
}

/** Whether UCP uses its first generation of protocols: the default before UCX 1.16. Settings in
 * UCX's configuration files or by the program are not seen; UCP's limits between protocols are then
 * not the best ones. */
bool first_protocols() {
    const char *setting = getenv("UCX_PROTO_ENABLE");
    if (setting == nullptr) {
        return abi::running_version().minor < 16;
    }
    const auto is = [setting](const char *value) { return strcasecmp(setting, value) == 0; };
    return is("n") || is("no") || is("off") || is("0");
}

/** How many lanes one message may use, as set under either name of the variable; 0: not set. */
unsigned long wanted_eager_lanes() {
    unsigned long lanes = 0;
    for (const char *name : {"UCX_MAX_EAGER_RAILS", "UCX_MAX_EAGER_LANES"}) {
        if (const char *setting = getenv(name)) {
            const bool unlimited = strcasecmp(setting, "inf") == 0;
            lanes = std::max(lanes, unlimited ? ULONG_MAX : strtoul(setting, nullptr, 10));
        }
    }
    return lanes;
}

}  // namespace

double interface_bandwidth() {
    return first_protocols() ? kHostTransferBandwidth : kTransferCosts.message_bandwidth;
}

unsigned device_paths() {
    // The most lanes of an endpoint in the first generation of protocols. UCX 1.14 and newer reduce
    // the bandwidth of each further path. With twice as many paths as lanes the last lane still has
    // more than half of it.
    constexpr unsigned long kMaxLanes = 64;
    const unsigned long lanes = first_protocols() ? std::min(wanted_eager_lanes(), kMaxLanes) : 0;
    return lanes < 2 ? 1 : static_cast<unsigned>(2 * lanes);
}

double registration_overhead() {
    if (!first_protocols()) {
        return 0;
    }
    if (CudaDriver::get() == nullptr) {
        return kFirstProtocolsRegistration;
    }
    openmpi::OpenMpiLibrary library;
    return openmpi::OpenMpiLibrary::find(&library) ? kNoZeroCopy : 0;
}

void estimate_shared_memory_cost(abi::PerfEstimate &estimate) {
    switch (estimate.operation) {
        case abi::Operation::am_bcopy:
        case abi::Operation::am_zcopy:
            estimate_message(estimate);
            break;
        case abi::Operation::put_zcopy:
        case abi::Operation::get_zcopy:
            estimate_transfer(estimate);
            break;
        default:
            break;
    }
}

}  // namespace gpushm::uct
