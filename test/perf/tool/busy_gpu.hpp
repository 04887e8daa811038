// SPDX-License-Identifier: BSD-3-Clause
// A GPU on which kernels of the program run all the time.
#pragma once

#include "../app_kernel.hpp"
#include "../driver.hpp"

#include <atomic>
#include <thread>

namespace gpushm::perf {

/** From its construction to its end, on the device that is current then. Throws std::runtime_error
 * when the driver fails at first; later failures end the kernels only. */
class BusyGpu {
public:
    BusyGpu(const Driver &driver, int device);
    ~BusyGpu();
    BusyGpu(const BusyGpu &) = delete;
    BusyGpu &operator=(const BusyGpu &) = delete;

private:
    void run(int device);

    const Driver &driver_;
    const AppKernel kernel_;
    CUstream stream_ = nullptr;
    CUevent ended_[2] = {};
    std::atomic<bool> over_{false};  // written by the owner; no other data goes with it
    std::thread thread_;             // keeps two kernels in the stream
};

}  // namespace gpushm::perf
