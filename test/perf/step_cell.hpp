// SPDX-License-Identifier: BSD-3-Clause
// What the steps and passes are made of that program_steps measures.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gpushm::perf {

/** What stands between the kernel and the exchange. `context`: cuCtxSynchronize, as
 * cudaDeviceSynchronize; `stream`: cuStreamSynchronize; `event`: an event behind the kernel and
 * cuEventSynchronize; `query`: cuStreamQuery in turn with MPI_Iprobe; `overlap`: nothing, the wait
 * comes behind the exchange, which does not touch what the kernel works on. */
enum class Wait { context, stream, event, query, overlap };

/** How a rank exchanges with all of its neighbours. `sendrecv`: one after the other. */
enum class Exchange { sendrecv, isend, persistent };

/** The program's own work on its GPU memory in each step, behind the exchange: cuMemcpy2D of rows
 * of 4 KiB, cuMemsetD8 of 4 KiB, cuMemcpyDtoD of 1 MiB. */
enum class OwnCopies { rows, memsets, large };

struct StepCell {
    std::string name;
    double kernel_us = 20;
    Wait wait = Wait::stream;
    Exchange exchange = Exchange::sendrecv;
    unsigned neighbours = 1;  // messages to and from the one peer; 0: none
    size_t bytes = 4096;      // of each message
    OwnCopies own_copies = OwnCopies::rows;
    unsigned own_copy_count = 0;
    bool reduces = false;  // an MPI_Allreduce of one double
    /** A pass: allocates two buffers of `buffer_bytes`, which the steps use in turn, makes
     * `pass_steps` steps and frees them. 0: steps with buffers that are there before. */
    unsigned pass_steps = 0;
    size_t buffer_bytes = 0;

    bool is_pass() const { return pass_steps != 0; }
};

/** The fixed cells of the table, in its order. */
const std::vector<StepCell> &step_cells();

/** Those whose names begin with one of `prefixes`; all if there is none. Throws std::runtime_error
 * for a prefix of no cell. */
std::vector<StepCell> step_cells_named(const std::vector<std::string> &prefixes);

}  // namespace gpushm::perf
