// SPDX-License-Identifier: BSD-3-Clause
#include "step_program.hpp"

#include <mpi.h>

#include <algorithm>
#include <memory>

namespace gpushm::perf {
namespace {

constexpr uint64_t kProbes = 20;
// A transport may watch a program's first steps before it decides.
constexpr size_t kMinWarmUpsForTrial = 100;
constexpr size_t kFirstSteps = 2;  // of a pass, which are told one by one

uint64_t agree(uint64_t of_rank_0) {
    MPI_Bcast(&of_rank_0, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    return of_rank_0;
}

double median(const std::vector<double> &values) {
    return figures_of(values, 1).median;
}

std::string member(const char *name, double value) {
    return std::string(", \"") + name + "\": " + std::to_string(value);
}

}  // namespace

StepProgram::Buffers::Buffers(const Driver &driver, const StepCell &cell)
    : bytes(cell.is_pass() ? cell.buffer_bytes
                           : std::max(2 * cell.neighbours * cell.bytes, OwnWork::kOwnBytes)),
      target(bytes - cell.neighbours * cell.bytes),
      first(&driver, MemoryKind::device, bytes),
      second(&driver, MemoryKind::device, bytes) {}

StepProgram::StepProgram(const Driver &driver, Mode mode, int rank)
    : driver_(driver),
      mode_(mode),
      rank_(rank),
      work_(driver),
      reduced_(&driver, MemoryKind::device, sizeof(double)) {}

void StepProgram::measure(const StepCell &cell, const Effort &effort, unsigned passes) {
    ++contents_;
    if (cell.is_pass()) {
        measure_passes(cell, passes);
    } else {
        measure_steps(cell, effort);
    }
}

void StepProgram::fill(const StepCell &cell, Buffers *buffers) const {
    const size_t bytes = cell.neighbours * cell.bytes;
    for (Memory *memory : {&buffers->first, &buffers->second}) {
        if (bytes != 0) {
            memory->clear(buffers->target, bytes);
            memory->fill(0, bytes, seed_of(rank_));
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);  // nobody receives before its memory is cleared
}

void StepProgram::check(const StepCell &cell, const Buffers &buffers) const {
    if (mode_ == Mode::none || cell.neighbours == 0) {
        return;
    }
    const size_t bytes = cell.neighbours * cell.bytes;
    buffers.first.check(buffers.target, bytes, seed_of(1 - rank_));
    if (cell.pass_steps > 1) {
        buffers.second.check(buffers.target, bytes, seed_of(1 - rank_));
    }
}

void StepProgram::step(const StepCell &cell, const Buffers &buffers, NeighbourExchange *halo,
                       StepTimes *times) {
    times->begin();
    work_.launch(cell);
    times->add(Part::launch);
    // A program that copies by hand waits by its first copy.
    if (cell.wait != Wait::overlap && (mode_ != Mode::staged || cell.neighbours == 0)) {
        work_.wait(cell);
    }
    halo->copy_to_host();
    times->add(cell.wait == Wait::overlap ? Part::exchange : Part::wait);
    halo->exchange();
    halo->copy_to_device();
    times->add(Part::exchange);
    if (cell.wait == Wait::overlap) {
        work_.wait(cell);
        times->add(Part::wait);
    }
    work_.copy(cell, buffers.first.address(), buffers.second.address());
    times->add(Part::copies);
    if (cell.reduces) {
        halo->reduce(reduced_.address());
        times->add(Part::reduce);
    }
    times->end();
}

void StepProgram::make_steps(const StepCell &cell, Buffers *buffers, NeighbourExchange *halo,
                             uint64_t count, StepTimes *times) {
    for (uint64_t i = 0; i < count; ++i) {
        if (cell.is_pass()) {
            char *buffer = (i % 2 == 0 ? buffers->first : buffers->second).address();
            halo->use(buffer, buffer + buffers->target);
        }
        step(cell, *buffers, halo, times);
    }
}

void StepProgram::measure_steps(const StepCell &cell, const Effort &effort) {
    Buffers buffers(driver_, cell);
    fill(cell, &buffers);
    NeighbourExchange halo(driver_, mode_, cell, 1 - rank_);
    char *buffer = buffers.first.address();
    halo.use(buffer, buffer + buffers.target);
    StepTimes probes, warm_ups, times;
    make_steps(cell, &buffers, &halo, kProbes, &probes);
    make_steps(cell, &buffers, &halo, kMinWarmUpsForTrial, &warm_ups);
    const double step_us = median(warm_ups.totals(0));
    make_steps(cell, &buffers, &halo, agree(effort.warm_ups(step_us)), &warm_ups);
    const uint64_t count = agree(effort.samples(step_us));
    const unsigned long calls_before = calls();
    make_steps(cell, &buffers, &halo, count, &times);
    const double calls_made = static_cast<double>(calls() - calls_before);
    driver_.require(driver_.cuCtxSynchronize(), "cuCtxSynchronize");
    check(cell, buffers);
    MPI_Barrier(MPI_COMM_WORLD);  // a rank that has done leaves its memory to the other until here
    const std::string counted =
        driver_.counts_calls() ? member("calls", calls_made / static_cast<double>(count)) : "";
    print(cell, "step", figures_of(times.totals(0), 1), ", " + times.as_json(0) + counted);
}

/** With the memory checked: its contents are written before and read after, and times say nothing.
 */
StepTimes StepProgram::pass(const StepCell &cell, bool checked, double *allocate_us,
                            double *free_us) {
    StepTimes times;
    NeighbourExchange halo(driver_, mode_, cell, 1 - rank_);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = now_us();
    auto buffers = std::make_unique<Buffers>(driver_, cell);
    driver_.require(driver_.cuMemsetD8(device_pointer(buffers->first.address()), 1, buffers->bytes),
                    "cuMemsetD8");
    driver_.require(driver_.cuCtxSynchronize(), "cuCtxSynchronize");
    *allocate_us = now_us() - start;
    if (checked) {
        fill(cell, buffers.get());
    }
    make_steps(cell, buffers.get(), &halo, cell.pass_steps, &times);
    if (checked) {
        driver_.require(driver_.cuCtxSynchronize(), "cuCtxSynchronize");
        check(cell, *buffers);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    const double end = now_us();
    buffers.reset();
    *free_us = now_us() - end;
    return times;
}

void StepProgram::measure_passes(const StepCell &cell, unsigned passes) {
    double allocate_us, free_us;
    pass(cell, true, &allocate_us, &free_us);
    std::vector<double> totals, allocations, frees, firsts, seconds;
    StepTimes last;
    for (unsigned i = 0; i < passes; ++i) {
        const double start = now_us();
        last = pass(cell, false, &allocate_us, &free_us);
        totals.push_back(now_us() - start);
        allocations.push_back(allocate_us);
        frees.push_back(free_us);
        const std::vector<double> steps = last.totals(0);
        firsts.push_back(steps[0]);
        seconds.push_back(steps[std::min<size_t>(1, steps.size() - 1)]);
    }
    print(cell, "pass", figures_of(totals, cell.pass_steps),
          member("allocate", median(allocations)) + member("first", median(firsts)) +
              member("second", median(seconds)) + member("free", median(frees)) + ", " +
              last.as_json(kFirstSteps));
}

void StepProgram::print(const StepCell &cell, const char *test, const Figures &figures,
                        const std::string &more) const {
    if (rank_ == 0) {
        print_cell("\"cell\": " + json_string(cell.name) + ", ", cell.bytes, test, figures, more);
    }
}

}  // namespace gpushm::perf
