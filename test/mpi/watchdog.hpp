// SPDX-License-Identifier: BSD-3-Clause
// Says what a rank was doing when it hangs or crashes.
#pragma once

namespace gpushm::mpi_test {

// Ends the process with a message when two notes are more than `seconds` apart, and names the last
// note when the process crashes. To be called once, after MPI_Init.
void start_watchdog(int rank, unsigned seconds);

// Notes what comes next (printf format).
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Stops the clock, e.g. before MPI_Finalize.
void stop_watchdog();

}  // namespace gpushm::mpi_test
