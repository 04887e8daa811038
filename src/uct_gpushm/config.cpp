// SPDX-License-Identifier: BSD-3-Clause
#include "uct_gpushm/config.hpp"

#include "core/base/log.hpp"

#include <algorithm>

namespace gpushm::uct {
namespace {

constexpr size_t kMinChunk = 4096;
constexpr uint32_t kMinCells = 16;
constexpr uint32_t kMaxCells = 1u << 16;

/** The nearest number of cells that a mailbox can have. */
uint32_t usable_cell_count(unsigned wanted) {
    uint32_t count = kMinCells;
    while (count < wanted && count < kMaxCells) {
        count *= 2;
    }
    if (count != wanted) {
        GPUSHM_LOG_ONCE(warn,
                        "UCX_GPUSHM_MAILBOX_CELLS=%u is not a power of two between %u and %u:"
                        " %u is used",
                        wanted, kMinCells, kMaxCells, count);
    }
    return count;
}

/** At most one second. */
uint32_t to_nanoseconds(double seconds) {
    return static_cast<uint32_t>(std::clamp(seconds * 1e9, 0.0, 1e9));
}

}  // namespace

std::vector<abi::Option> options() {
    using abi::OptionType;
    return {
        {"RING_SIZE", "8m",
         "Tuning constant: size of the staging ring for data that goes to one other process "
         "without\n"
         "a direct copy (CMA or a mapping). A ring is allocated at the first use and has at least\n"
         "32 KiB. The default has room for 8 pieces of GPU memory (GPU_CHUNK). Long messages "
         "between\n"
         "GPUs take four times as much GPU memory beside it.\n"
         "0: no ring, such data goes in pieces of 32 KiB.",
         OptionType::memory_size, offsetof(InterfaceConfig, ring_size)},
        {"RING_LIMIT", "256m",
         "Tuning constant: size of all staging rings of one UCX worker together. Each new ring "
         "takes\n"
         "at most a quarter of what is left. When nothing is left, messages go in pieces of 32 "
         "KiB.\n"
         "The default bounds the shared memory of a process with many peers.",
         OptionType::memory_size, offsetof(InterfaceConfig, ring_limit)},
        {"GPU_CHUNK", "1m",
         "Tuning constant: size of the pieces in which large messages from or to GPU memory pass "
         "the\n"
         "staging ring; at least 4 KiB and at most a quarter of the ring, so that both processes\n"
         "copy at the same time.",
         OptionType::memory_size, offsetof(InterfaceConfig, gpu_chunk)},
        {"HOST_CHUNK", "128k",
         "Tuning constant: size of the pieces in which large messages between host buffers pass "
         "the\n"
         "staging ring; at least 4 KiB and at most a quarter of the ring. With the default the\n"
         "pieces in flight fit the cache that the processes share.",
         OptionType::memory_size, offsetof(InterfaceConfig, host_chunk)},
        {"MAILBOX_CELLS", "256",
         "Tuning constant: number of messages that can wait in the mailbox of a UCX worker until "
         "it\n"
         "makes progress, 64 of them longer than 112 bytes or packed by UCX; a power of two\n"
         "from 16 to 65536. Each takes 128 bytes of shared memory, the first 64 32 KiB more.",
         OptionType::unsigned_integer, offsetof(InterfaceConfig, mailbox_cells)},
        {"PIN", "y",
         "Page-lock gpushm's shared memory (cuMemHostRegister) when a GPU first copies from or to\n"
         "it. n: GPU copies are slower and synchronous, and UCX_GPUSHM_HOST_PIN_LIMIT counts as 0.",
         OptionType::boolean, offsetof(InterfaceConfig, pin)},
        {"PEER_MAPPING", "y",
         "Map GPU memory of other processes (CUDA IPC or file descriptors of virtual memory\n"
         "management) where a direct copy is faster than one through host memory.\n"
         "n: all GPU memory of other processes is copied through host memory.",
         OptionType::boolean, offsetof(InterfaceConfig, peer_mapping)},
        {"CMA", "y",
         "Copy large messages between host buffers directly (process_vm_readv), where the "
         "operating\n"
         "system permits it and gpushm measures that it is not slower than shared memory.\n"
         "n: they go through shared memory.",
         OptionType::boolean, offsetof(InterfaceConfig, cma)},
        {"HOST_PIN_LIMIT", "4g",
         "Size of the application's host memory that gpushm page-locks at the same time, per\n"
         "process. GPUs copy large messages directly from and to page-locked buffers. A buffer is\n"
         "page-locked when it is used repeatedly. 0: none.",
         OptionType::memory_size, offsetof(InterfaceConfig, host_pin_limit)},
        {"OPENMPI", "y",
         "Make Open MPI's derived datatypes, reductions, one-sided operations and files work on "
         "GPU\n"
         "buffers. Read from the environment only. n: Open MPI stays as it is, and the component\n"
         "of gpushm-openmpi does not select UCX.",
         OptionType::boolean, offsetof(InterfaceConfig, openmpi)},
        {"OPENMPI_STAGING", "8k",
         "Tuning constant: a message of a derived datatype in device memory with at least this "
         "many\n"
         "bytes is packed in device memory; a smaller one is packed in host memory, up to 8 KiB "
         "as\n"
         "a whole, otherwise in pieces. Vectors that the peer can copy itself are not packed.\n"
         "Where other programs launch kernels on the GPU, vectors are packed in host memory up to\n"
         "128 KiB.\n"
         "0: all are packed in device memory, inf: none.",
         OptionType::memory_size, offsetof(InterfaceConfig, openmpi_staging)},
        {"OPENMPI_HOST_COLLECTIVES", "64k",
         "Tuning constant: scale of the sizes up to which collective operations on GPU buffers "
         "run\n"
         "in host memory. For two ranks, reductions do so up to 3/4 of this size, Allgather up to\n"
         "1/16, Alltoall and Scatter up to 1/8; the first two to larger sizes with more ranks.\n"
         "Where other processes use the GPU, reductions do so up to twice this size, and up to 16\n"
         "times where their kernels would wait for others. Sizes above 128 KiB count as 128 KiB.\n"
         "0: none. inf: as 128 KiB, and larger reductions keep temporary data in host memory.",
         OptionType::memory_size, offsetof(InterfaceConfig, openmpi_host_collectives)},
        {"OPENMPI_BUFFERED", "2k",
         "MPI_Send of device memory with fewer bytes returns although no receive is posted: it "
         "waits\n"
         "only while a receiver copies the message. With this many bytes or more it may wait until "
         "the\n"
         "receive is posted. The default serves programs that rely on short sends to return.\n"
         "0: every MPI_Send may wait, inf: none does.",
         OptionType::memory_size, offsetof(InterfaceConfig, openmpi_buffered)},
        {"STANDBY", "auto",
         "Copy small messages with gpushm's standby kernel, which is resident on the GPU while "
         "the\n"
         "process waits for messages, in half the time of a copy by the driver. x86-64 only.\n"
         "auto or try: after several small messages, where the program does not wait for all\n"
         "work of the GPU in each step, nor launches more kernels than it has small messages.\n"
         "yes: from the first message on. no: never.",
         OptionType::ternary_auto, offsetof(InterfaceConfig, standby)},
        {"STANDBY_LIFE", "2ms",
         "Tuning constant: time after which the standby kernel leaves the GPU in any case; at "
         "most\n"
         "1 s. Where gpushm does not see that other threads wait for all work of the GPU (a UCX\n"
         "built with CUDA), it bounds their delay, and is at most 0.5 ms.",
         OptionType::time, offsetof(InterfaceConfig, standby_life)},
        {"STANDBY_BEAT", "200us",
         "Tuning constant: time after which the standby kernel leaves the GPU when the process "
         "has\n"
         "stopped waiting for messages; at most 1 s. cudaDeviceSynchronize, cudaFree and similar\n"
         "calls end it at once. Where gpushm does not see such calls (a UCX built with CUDA), the\n"
         "time is at most 2 us.",
         OptionType::time, offsetof(InterfaceConfig, standby_beat)},
    };
}

PortConfig port_config(const InterfaceConfig &config) {
    PortConfig port = {};
    port.ring_bytes = config.ring_size == 0 ? 0 : std::max(config.ring_size, 8 * kMinChunk);
    port.ring_limit = config.ring_limit;
    port.gpu_chunk_bytes = std::max(config.gpu_chunk, kMinChunk);
    port.host_chunk_bytes = std::max(config.host_chunk, kMinChunk);
    port.cell_count = usable_cell_count(config.mailbox_cells);
    port.peer_mapping = config.peer_mapping != 0;
    port.cma = config.cma != 0;
    return port;
}

StandbyConfig standby_config(const InterfaceConfig &config) {
    using Mode = StandbyConfig::Mode;
    constexpr int kNo = 0;   // UCS_NO
    constexpr int kYes = 1;  // UCS_YES
    return {config.standby == kNo    ? Mode::off
            : config.standby == kYes ? Mode::whenever_possible
                                     : Mode::when_it_pays,
            to_nanoseconds(config.standby_beat), to_nanoseconds(config.standby_life)};
}

openmpi::Limits openmpi_limits(const InterfaceConfig &config) {
    return {config.openmpi_staging, config.openmpi_host_collectives, config.openmpi_buffered};
}

}  // namespace gpushm::uct
