// SPDX-License-Identifier: BSD-3-Clause
// What a test process can be told to do. Both processes of a pair run the same function; `role` is
// 0 or 1. A function that fails does not return (check.hpp).
#pragma once

#include "channel.hpp"
#include "options.hpp"

namespace gpushm::ucp_test {

struct Peer {
    int role;
    Channel &channel;
    const Options &options;
};

// Sizes, kinds of memory, contents: a message for each pair of `--kinds` in each of `--sizes`, in
// both directions.
void tagged_messages(Peer &peer);
void active_messages(Peer &peer);
void streams(Peer &peer);
void put_and_get(Peer &peer);
void atomics(Peer &peer);
/** `--count` messages of all kinds under way at once, both ways. */
void window(Peer &peer);
/** Tagged messages to oneself; one process. */
void loopback(Peer &peer);

/** Messages of every operation between all allocators (`--from=`, `--to=`). `--full`: more sizes,
 * up to `--largest-mib`. `--rma=n`, `--am=n`: not these operations. `--same-device`, `--verbose`.
 */
void matrix(Peer &peer);

// Memory and contexts that come and go (lifetime.cpp).
void reallocated(Peer &peer);
void freed_while_mapped(Peer &peer);
void freed_beside_kernel(Peer &peer);
void own_ipc_handle(Peer &peer);
void context_reset(Peer &peer);
void fork_in_the_middle(Peer &peer);
void other_contexts(Peer &peer);
void several_devices(Peer &peer);
void visible_devices(Peer &peer);
/** A GPU in the compute mode EXCLUSIVE_PROCESS, which process 0 has. */
void taken_device(Peer &peer);

/** Host memory whose pages change while gpushm knows of them (changed_pages.cpp). */
void changed_pages(Peer &peer);

// Beside work of the application on the GPU (application_work.cpp).
void visibility(Peer &peer);
void waiting_kernel(Peer &peer);
void captures(Peer &peer);

/** Messages in which one call of the driver fails; for the program driver_failures. */
void failing_calls(Peer &peer);

/** Ping-pong of processes that sleep whenever there is nothing to do, and one long sleep. */
void sleeping_ping_pong(Peer &peer);

/** Process 1 kills itself at `--when=rest|unanswered|send|receive`, after so many busy `--polls`;
 * process 0 must be told, and keep nothing. `--warm` messages go before. */
void killed_peer(Peer &peer);

/** Process 0 stops process 1 `--stops` times for so many `--milliseconds`, while `--count` messages
 * of each are under way. */
void stopped_peer(Peer &peer);

/** The processes connect when process 0 can open only so many files more as are `--left`. */
void few_descriptors(Peer &peer);

/** Endpoints closed while messages are under way. */
void close_with_flush(Peer &peer);
void close_by_force(Peer &peer);
void close_beside_stopped(Peer &peer);
void waiting_messages(Peer &peer);
void put_among_waiting(Peer &peer);

/** `--threads` threads of each process on one worker. */
void threads(Peer &peer);
/** `--workers` workers of each process, each connected to each of the other. */
void many_endpoints(Peer &peer);

// What kind of memory lies at an address (detection.cpp); of `--kinds=`, or from all allocators.
/** Addresses that are freed and become memory of another kind; one process. */
void changing_kinds(Peer &peer);
/** `--rounds` allocations, each freed before the next; one process. */
void reused_addresses(Peer &peer);
/** Buffers and a driver that are older, or younger, than UCX; one process. */
void cuda_before_ucx(Peer &peer);
void cuda_after_ucx(Peer &peer);
/** In the steady state the driver is not asked for the kind of a buffer. */
void lookups(Peer &peer);

/** GPU memory that UCX allocates and frees; one process (ucx_memory.cpp). */
void allocated_by_ucx(Peer &peer);

// While the standby kernel does the small copies (standby.cpp, standby_work.cpp); all run without
// it as well.
/** Messages of all sizes and alignments between `--from` and `--to`, in a row and in windows. */
void standby_messages(Peer &peer);
/** `--count` messages that the GPU, or the CPU, reads as soon as they are there. */
void standby_visibility(Peer &peer);
/** After `--warm` messages, kernels of the application fill both GPUs until the next one is there.
 * They look at `--word=device|pinned` memory. `--early`: the first before the processes are
 * connected. */
void standby_full_gpu(Peer &peer);
/** A message that is sent when another thread of its receiver has waited for the GPU. */
void standby_other_thread(Peer &peer);
/** The application waits for the GPU, allocates, frees and launches right after messages. */
void standby_driver_calls(Peer &peer);
void standby_fork(Peer &peer);
/** Kernels that are killed, on a driver that can be told to. */
void standby_dies(Peer &peer);

/** Each hears an address of the other that was changed to say another `--what=version|user`. */
void foreign_peer(Peer &peer);

}  // namespace gpushm::ucp_test
