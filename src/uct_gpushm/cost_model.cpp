// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/cost_model.hpp"

#include "core/cuda/cuda_driver.hpp"

#include <strings.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

namespace gpushm::uct {
namespace {

// One memcpy into or out of shared memory that the other side's cache holds.
constexpr double kHostCopyBandwidth = 7e9;

// One memcpy into shared memory and one out of it, at the same time, as the interface says it.
constexpr double kMessageBandwidth = 20e9;

// The reader lets the kernel copy, once; the other process helps with long ones. That takes 1.5 us
// and 1 s for 16 GB. But UCP reckons with 5 to 7 GB/s (UCX_BCOPY_BW) for each copy of an eager
// message, which slots in the caches are far from: 32 KiB take 2.2 us as an eager message and 4.5
// as a transfer (UCX 1.22, EPYC 9004, cores with a common cache), 3 and 8.4 where the sender has
// just written them; between cores far apart 7 to 8 and 5.2, 11 and 21. 64 KiB, far apart, 15
// and 6.4, 14 to 24 and 37. So a transfer is said to need this before it begins, and UCP takes it
// behind 31 KiB where it reckons with 7 GB/s, 23 with 5, and of a stream of messages
// (UCP_OP_ATTR_FLAG_MULTI_SEND) behind 64 and 45. On the former machines (Xeon of 2024, two cores)
// 32 KiB take 4.5 us as an eager message, 2.3 as a transfer, written before 5.3 and 4.6; in
// windows 2.4 and 3.3 each; a stream of 64 KiB 13 GB/s and 25.
constexpr double kHostTransferStart = 8.5e-6;

// Where messages may go to a GPU's memory, which their sender cannot know: UCP takes a transfer
// behind 16 KiB. 16 KiB to it take 8.8 us as an eager message and 10.3 as a transfer, in
// windows 7.4 and 3.6 each (which UCP unpacks one by one; UCX 1.22 with CUDA 9.4); between hosts of
// such a node 3.4 either way, in windows 1.3 and 2.6, where the sender has just written them 4.9
// and 7.1, in windows 1.9 and 3.2 (two H100, Xeon, UCX 1.16).
constexpr double kHostTransferStartBesideGpu = 5e-6;

// Of transports whose bandwidth is a fourth (UCX_MULTI_LANE_MAX_RATIO) or more of the best one's
// UCP has each move a part of a transfer: 64 KiB took 9.1 us by gpushm and cma, 5.0 by gpushm
// alone. cma says 11.7 GB/s, knem 14.5.
constexpr double kHostTransferBandwidth = 63e9;

// Transfers whose chunks pass through pinned memory: a CPU copies on one side, or GPUs on both.
// More than a transfer between hosts, so that UCP does not put a bounce buffer of its own in
// between; but less than a fourth of what cuda_ipc says of NVLink (262 GB/s and more).
constexpr double kHostGpuTransferBandwidth = 64e9;
constexpr double kGpuTransferBandwidth = 65e9;
static_assert(kHostTransferBandwidth < kHostGpuTransferBandwidth &&
                  kHostGpuTransferBandwidth < kGpuTransferBandwidth,
              "no bounce buffer of UCP's is quicker");

// A "zero-copy" message of host memory is copied as am_bcopy does it, and UCP registers its buffer
// before: 10 to 30 % slower at 1 to 4 KiB (EPYC 9004, two cores). So UCP shall not choose it. UCX
// before 1.20 does not say whose memory a message is in, so this counts for a GPU's, too: UCP shall
// fetch that (get_zcopy), which begins with the announcement (link_head_start.cpp), and not have it
// sent when it asks, 1.5 us later. Hence more than a transfer takes.
constexpr double kMessageBehindTransfer = 0.2e-6;

// Zero-copy begins at this / (1 / UCX_BCOPY_BW - 1 / bandwidth of the interface), that is with our
// 63 GB/s and the defaults of 5008 (AMD) and 5800 MiB/s at 38 and 45 KiB, where the rendezvous has
// begun (UCX 1.13.1 src/ucp/core/ucp_ep.c, ucp_ep_config_get_zcopy_auto_thresh()).
constexpr double kFirstProtocolsRegistration = 6.8e-6;

// One DMA over PCIe 5 between a GPU and pinned memory: 7.1 us for 8 bytes, 8.3 us for 64 KiB.
constexpr double kGpuCopyStart = 4e-6;

// An eager message from a GPU costs a second copy where its receiver has GPU memory, a rendezvous
// does not; and each further fragment costs two more.
constexpr double kGpuEagerBandwidth = 2e9;

bool is_gpu_memory(ucs_memory_type_t type) {
    return type == UCS_MEMORY_TYPE_CUDA || type == UCS_MEMORY_TYPE_CUDA_MANAGED;
}

double host_transfer_start() {
    return CudaDriver::get() != nullptr ? kHostTransferStartBesideGpu : kHostTransferStart;
}

void estimate_message(abi::PerfEstimate &estimate) {
    if (is_gpu_memory(estimate.local_memory_type)) {
        estimate.send_pre_overhead += kGpuCopyStart;
        estimate.bandwidth_dedicated = kGpuEagerBandwidth;
    } else if (estimate.operation == abi::Operation::am_zcopy) {
        estimate.bandwidth_dedicated = kHostCopyBandwidth;
        estimate.send_pre_overhead += host_transfer_start() + kMessageBehindTransfer;
    } else {
        estimate.bandwidth_dedicated = kMessageBandwidth;  // UCP adds the copies
    }
}

void estimate_transfer(abi::PerfEstimate &estimate) {
    const bool local_gpu = is_gpu_memory(estimate.local_memory_type);
    const bool remote_gpu = is_gpu_memory(estimate.remote_memory_type);
    // UCX before 1.19 does not say what the other side is: then, as UCP does, the same as here.
    // Before 1.20 it mostly says nothing of this side either, which counts as host memory.
    const bool remote_known = estimate.remote_memory_type == UCS_MEMORY_TYPE_HOST || remote_gpu;
    estimate.send_pre_overhead += local_gpu || remote_gpu ? kGpuCopyStart : host_transfer_start();
    if (local_gpu && (remote_gpu || !remote_known)) {
        estimate.bandwidth_dedicated = kGpuTransferBandwidth;
    } else {
        estimate.bandwidth_dedicated =
            local_gpu || remote_gpu ? kHostGpuTransferBandwidth : kHostTransferBandwidth;
    }
}

/** UCX takes them before 1.16 unless told otherwise: what its configuration files and programs tell
 * it is not seen here, and then its limits between protocols are not the best ones. */
bool first_protocols() {
    const char *setting = getenv("UCX_PROTO_ENABLE");
    if (setting == nullptr) {
        return abi::running_version().minor < 16;
    }
    const auto is = [setting](const char *value) { return strcasecmp(setting, value) == 0; };
    return is("n") || is("no") || is("off") || is("0");
}

/** Of the lanes that one message may take, as a user has set it under either name; 0: not. */
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
    return first_protocols() ? kHostTransferBandwidth : kMessageBandwidth;
}

unsigned device_paths() {
    // No endpoint of the first protocols has more lanes. UCX 1.14 and newer expect less of each
    // further path, in proportion: with twice as many paths as lanes the last one still has more
    // than half of our bandwidth.
    constexpr unsigned long kMaxLanes = 64;
    const unsigned long lanes = first_protocols() ? std::min(wanted_eager_lanes(), kMaxLanes) : 0;
    return lanes < 2 ? 1 : static_cast<unsigned>(2 * lanes);
}

double registration_overhead() {
    return first_protocols() && CudaDriver::get() == nullptr ? kFirstProtocolsRegistration : 0;
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
