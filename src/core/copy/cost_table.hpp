// SPDX-License-Identifier: BSD-3-Clause
// What copies and messages cost, as far as choices depend on it: the figures for each generation of
// GPUs. `gpushm-report limits` reads this file, and prints it with the figures of the machine that
// it has measured. doc/decisions/copy-standby-limits.md and uct_gpushm-cost-model.md say how the
// present ones were measured.
#pragma once

#include <cstddef>

namespace gpushm {

/** Up to how many bytes the standby kernel copies more quickly than a copy engine, where both sides
 * are aligned to 16 bytes and the kernel uses its widest words. */
struct StandbyLimits {
    size_t between_gpus;
    size_t within_gpu;
    size_t to_host;
    size_t from_host;
};
struct StandbyCosts {
    StandbyLimits alone;
    StandbyLimits in_traffic;  // several copies are under way, so that the bandwidth counts
    size_t managed;
};

/** What UCP is told of transfers; seconds, and bytes per second. */
struct TransferCosts {
    double gpu_copy_start;       // one DMA between a GPU and pinned memory
    double gpu_eager_bandwidth;  // with the second copy that a receiver in GPU memory needs
    double host_copy_bandwidth;  // one memcpy into or out of shared memory in a warm cache
    double message_bandwidth;    // one memcpy into it and one out of it, which overlap
    /** Between host buffers. UCP underestimates eager messages, so it takes a transfer from 23 to
     * 31 KiB on. */
    double host_transfer_start;
    /** Where the receive buffer may be in GPU memory, which the sender does not know: UCP takes a
     * transfer from 16 KiB on. */
    double host_transfer_beside_gpu;
};

// GPUs without thread block clusters (up to compute capability 8.9): the kernel has one block.
constexpr StandbyCosts kBlockCosts = {
    {/*between_gpus=*/96u << 10, /*within_gpu=*/96u << 10, /*to_host=*/192u << 10,
     /*from_host=*/96u << 10},
    {/*between_gpus=*/64u << 10, /*within_gpu=*/64u << 10, /*to_host=*/64u << 10,
     /*from_host=*/12u << 10},
    /*managed=*/128u << 10,
};

// GPUs with thread block clusters (compute capability 9.0 and newer).
constexpr StandbyCosts kClusterCosts = {
    {/*between_gpus=*/768u << 10, /*within_gpu=*/1u << 20, /*to_host=*/768u << 10,
     /*from_host=*/768u << 10},
    {/*between_gpus=*/256u << 10, /*within_gpu=*/1u << 20, /*to_host=*/64u << 10,
     /*from_host=*/32u << 10},
    /*managed=*/1u << 20,
};

// All generations: UCP asks before it is known which GPU a message is for.
constexpr TransferCosts kTransferCosts = {
    /*gpu_copy_start=*/4e-6,        /*gpu_eager_bandwidth=*/2e9,
    /*host_copy_bandwidth=*/7e9,    /*message_bandwidth=*/20e9,
    /*host_transfer_start=*/8.5e-6, /*host_transfer_beside_gpu=*/5e-6,
};

}  // namespace gpushm
