// SPDX-License-Identifier: BSD-3-Clause
#include "busy_gpu.hpp"

#include <exception>

namespace gpushm::perf {
namespace {

// Long beside a message, short beside a sample of many messages.
constexpr double kKernelUs = 500;
constexpr unsigned kThreads = 256;  // of a block; one block for each multiprocessor

}  // namespace

BusyGpu::BusyGpu(const Driver &driver, int device) : driver_(driver), kernel_(driver) {
    driver_.require(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (CUevent &event : ended_) {
        // The thread sleeps: it may have to share a processor with the messages.
        driver_.require(
            driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC),
            "cuEventCreate");
    }
    kernel_.launch(stream_, kKernelUs, 1, kThreads);
    driver_.require(driver_.cuEventRecord(ended_[0], stream_), "cuEventRecord");
    thread_ = std::thread([this, device] { run(device); });
}

BusyGpu::~BusyGpu() {
    over_.store(true, std::memory_order_relaxed);
    thread_.join();
    driver_.cuStreamSynchronize(stream_);
    for (CUevent event : ended_) {
        driver_.cuEventDestroy(event);
    }
    driver_.cuStreamDestroy(stream_);
}

void BusyGpu::run(int device) {
    try {
        driver_.use_device(device);
        for (unsigned next = 1; !over_.load(std::memory_order_relaxed); next = 1 - next) {
            kernel_.launch(stream_, kKernelUs, 1, kThreads);
            driver_.require(driver_.cuEventRecord(ended_[next], stream_), "cuEventRecord");
            driver_.require(driver_.cuEventSynchronize(ended_[1 - next]), "a kernel");
        }
    } catch (const std::exception &) {
        // The main thread meets the same failure in its next call.
    }
}

}  // namespace gpushm::perf
