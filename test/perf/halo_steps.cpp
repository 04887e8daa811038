// SPDX-License-Identifier: BSD-3-Clause
#include "halo_steps.hpp"

#include <stdexcept>

namespace gpushm::perf {
namespace {

/** Far enough apart for the slots. */
uint64_t seed_of(int sender, uint64_t contents) {
    return (2 * contents + static_cast<uint64_t>(sender)) << 16;
}

}  // namespace

Synchronization parse_synchronization(const std::string &text) {
    if (text == "stream") {
        return Synchronization::stream;
    }
    if (text == "context") {
        return Synchronization::context;
    }
    if (text == "query") {
        return Synchronization::query;
    }
    throw std::runtime_error(text + ": a step synchronizes by stream, context or query");
}

HaloSteps::HaloSteps(const MeasuringSide &here, MemoryType type, size_t size, unsigned most_messages)
    : here_(here),
      size_(size),
      kernel_(*here.driver),
      source_(here.driver, type, most_messages * stride_of(size)),
      destination_(here.driver, type, most_messages * stride_of(size)) {
    here_.driver->require(here_.driver->cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING),
                          "cuStreamCreate");
}

HaloSteps::~HaloSteps() {
    here_.driver->cuStreamDestroy(stream_);
}

Figures HaloSteps::measure(const HaloStep &step, const Effort &effort) {
    ++contents_;
    source_.prepare(size_, step.messages);
    destination_.prepare(size_, step.messages);
    source_.prepare_source(seed_of(here_.side.number(), contents_));
    destination_.prepare_destination();
    const Figures figures = measure_on_both_sides(
        here_, [&](uint64_t count) { return run(step, count); }, effort, 1);
    destination_.check(seed_of(1 - here_.side.number(), contents_));
    here_.side.barrier(here_.connection.progress_function());
    return figures;
}

std::vector<double> HaloSteps::run(const HaloStep &step, uint64_t count) {
    std::vector<double> times;
    here_.side.barrier(here_.connection.progress_function());
    double start = now_us();
    for (uint64_t i = 0; i < count; ++i) {
        kernel_.launch(stream_, step.kernel_us, step.blocks_per_multiprocessor, step.threads);
        synchronize(step.synchronization);
        exchange(step.messages);
        const double end = now_us();
        times.push_back(end - start);
        start = end;
    }
    return times;
}

void HaloSteps::synchronize(Synchronization synchronization) const {
    const Driver &driver = *here_.driver;
    CUresult result = CUDA_SUCCESS;
    switch (synchronization) {
    case Synchronization::stream: result = driver.cuStreamSynchronize(stream_); break;
    case Synchronization::context: result = driver.cuCtxSynchronize(); break;
    case Synchronization::query:
        while ((result = driver.cuStreamQuery(stream_)) == CUDA_ERROR_NOT_READY) {
            here_.connection.progress();
        }
        break;
    }
    driver.require(result, "the application's kernel");
}

void HaloSteps::exchange(unsigned messages) {
    for (unsigned i = 0; i < messages; ++i) {
        requests_.push_back(here_.connection.receive(destination_.address(i), size_, i));
    }
    for (unsigned i = 0; i < messages; ++i) {
        requests_.push_back(here_.connection.send(source_.address(i), size_, i));
    }
    here_.connection.wait_all(&requests_);
}

}  // namespace gpushm::perf
