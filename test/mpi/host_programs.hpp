// SPDX-License-Identifier: BSD-3-Clause
// Programs on host memory that a job may be. Each prints a line for each thing that it does, `NAME:
// right` or `NAME: wrong`, and the same lines in the same order whatever Open MPI sends them
// through.
#pragma once

#include "cuda_driver.hpp"

#include <mpi.h>

#include <string>

namespace gpushm::mpi_test {

/** Prints the line of one check, by rank 0 of `comm`. Collective: it is right where it is right on
 * every rank. */
void report(MPI_Comm comm, const std::string &name, bool is_right);

/** Windows made by `how` (create, allocate, shared, dynamic): every operation, with every type, in
 * every kind of epoch. The buffers are of `kind`, and so is the window where the program brings its
 * memory. */
void run_windows(const std::string &how, MemoryKind kind);

/** Ranks that wait for each other by calls of one-sided communication alone. */
void run_waiting();

/** Regions that are attached, detached and attached again, more of them than a component has room
 * for. */
void run_regions();

/** Messages that are matched by MPI_Mprobe and received by MPI_Imrecv. */
void run_matched();

/** MPI_Allreduce of all sizes, on communicators that live for many calls and for few. */
void run_sums();

/** A communicator that is revoked, and shrunk. Prints nothing where this MPI tolerates no faults.
 */
void run_revoked();

/** Processes that this job starts, with messages and windows between both worlds. */
void run_spawn(const char *program);

/** Two halves of a job that connect by a port's name. */
void run_connect();

/** Several threads of each rank send, receive and put at a time. */
void run_threads();

/** One file that all ranks write and read through views with gaps. */
void run_files();

/** MPI_Session_init without MPI_Init. Prints nothing where this MPI has no sessions. */
void run_session();

}  // namespace gpushm::mpi_test
