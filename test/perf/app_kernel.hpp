// SPDX-License-Identifier: BSD-3-Clause
// The application's own work on the GPU: a kernel that does nothing for a given time.
#pragma once

#include "driver.hpp"

#include <string>

namespace gpushm::perf {

/** In the context that is current when it is made, which is current in all calls. Throws
 * std::runtime_error when the driver fails. */
class AppKernel {
public:
    explicit AppKernel(const Driver &driver);
    ~AppKernel();
    AppKernel(const AppKernel &) = delete;
    AppKernel &operator=(const AppKernel &) = delete;

    /** Blocks of `threads`, `blocks_per_multiprocessor` times as many as there are multiprocessors,
     * each of which runs `us` from its start. */
    void launch(CUstream stream, double us, unsigned blocks_per_multiprocessor,
                unsigned threads) const;

    /** As many blocks as the whole GPU holds at a time, which start together and end at once. */
    void launch_cooperative(CUstream stream) const;

    /** Whether the driver has cooperative launches. */
    bool can_be_cooperative() const;

    /** Empty, or how the kernel differs from what was said above. */
    std::string note() const;

private:
    const Driver &driver_;
    CUmodule module_ = nullptr;
    CUfunction function_ = nullptr;
    unsigned multiprocessors_ = 1;
    unsigned most_blocks_ = 0;         // of kMaxThreads, on a multiprocessor at a time
    unsigned *always_over_ = nullptr;  // simulated driver only: the word that ends its kernel
};

}  // namespace gpushm::perf
