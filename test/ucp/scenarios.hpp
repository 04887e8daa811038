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

/** Ping-pong of processes that sleep whenever there is nothing to do, and one long sleep. */
void sleeping_ping_pong(Peer &peer);

/** Process 1 kills itself at `--when=rest|send|receive`; process 0 must be told. */
void killed_peer(Peer &peer);

/** Endpoints closed while messages are under way. */
void close_with_flush(Peer &peer);
void close_by_force(Peer &peer);

/** `--threads` threads of each process on one worker. */
void threads(Peer &peer);
/** `--workers` workers of each process, each connected to each of the other. */
void many_endpoints(Peer &peer);

/** Addresses that are freed and become memory of another kind; one process. */
void changing_kinds(Peer &peer);
/** Buffers and a driver that are older, or younger, than UCX; one process. */
void cuda_before_ucx(Peer &peer);
void cuda_after_ucx(Peer &peer);

/** Each hears an address of the other that was changed to say another `--what=version|user`. */
void foreign_peer(Peer &peer);

}  // namespace gpushm::ucp_test
