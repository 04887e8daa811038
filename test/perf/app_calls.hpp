// SPDX-License-Identifier: BSD-3-Clause
// Calls of an application to the CUDA driver that may have to wait for what else is on the GPU.
#pragma once

#include "app_kernel.hpp"
#include "driver.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gpushm::perf {

struct AppCall {
    std::string name;
    std::function<void()> before;  // not measured, no wait for the GPU; may be empty
    std::function<void()> call;
    std::function<void()> after;  // not measured; may be empty
};

/** The calls, and what they work with. In the context that is current when it is made, which is
 * current in all calls. Throws std::runtime_error when the driver fails. */
class AppCalls {
public:
    explicit AppCalls(const Driver &driver);
    ~AppCalls();
    AppCalls(const AppCalls &) = delete;
    AppCalls &operator=(const AppCalls &) = delete;

    /** All that the driver has: nothing (no call), context-sync (cuCtxSynchronize), free and alloc
     * (of device memory), launch, cooperative (a launch that needs the whole GPU) and graph (its
     * launch), each of these three with cuStreamSynchronize. */
    const std::vector<AppCall> &all() const { return calls_; }

    /** Empty, or what is left out or different here. */
    std::string note() const;

private:
    void capture_graph();
    void synchronize() const;

    const Driver &driver_;
    const AppKernel kernel_;
    CUstream stream_ = nullptr;
    CUgraph graph_ = nullptr;
    CUgraphExec executable_ = nullptr;
    CUdeviceptr memory_ = 0;  // for free and alloc
    std::vector<AppCall> calls_;
};

}  // namespace gpushm::perf
