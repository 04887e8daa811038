// SPDX-License-Identifier: BSD-3-Clause
// The steps of an application that computes on its GPU and then exchanges halos with a neighbour.
#pragma once

#include "app_kernel.hpp"
#include "figures.hpp"
#include "message_buffers.hpp"
#include "ucp_program.hpp"

#include <string>
#include <vector>

namespace gpushm::perf {

/** What stands between the kernel and the messages: cuStreamSynchronize, cuCtxSynchronize, or
 *  cuStreamQuery in turn with ucp_worker_progress. */
enum class Synchronization { stream, context, query };

/** Throws std::runtime_error on what is none. */
Synchronization parse_synchronization(const std::string &text);

/** What one step is made of. */
struct HaloStep {
    Synchronization synchronization;
    double kernel_us;
    unsigned blocks_per_multiprocessor;
    unsigned threads;   // of a block
    unsigned messages;  // each way; 0: the kernel alone
};

/** Both sides call the same functions with the same arguments; figures are those of side 0. What
 *  arrives is checked; wrong data throws std::runtime_error. */
class HaloSteps {
public:
    /** With messages of `size` bytes in memory of a type that needs no preparation, `most_messages` at most. */
    HaloSteps(const MeasuringSide &here, MemoryType type, size_t size, unsigned most_messages);
    ~HaloSteps();
    HaloSteps(const HaloSteps &) = delete;
    HaloSteps &operator=(const HaloSteps &) = delete;

    /** us a step: kernel, synchronization, messages both ways, until those of this side are over. */
    Figures measure(const HaloStep &step, const Effort &effort);

    /** As in AppKernel. */
    std::string note() const { return kernel_.note(); }

private:
    std::vector<double> run(const HaloStep &step, uint64_t count);
    void synchronize(Synchronization synchronization) const;
    void exchange(unsigned messages);

    const MeasuringSide here_;
    const size_t size_;
    AppKernel kernel_;
    MessageBuffers source_;
    MessageBuffers destination_;
    CUstream stream_ = nullptr;
    uint64_t contents_ = 0;  // counts the measurements, alike on both sides
    std::vector<ucs_status_ptr_t> requests_;
};

}  // namespace gpushm::perf
