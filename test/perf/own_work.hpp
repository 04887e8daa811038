// SPDX-License-Identifier: BSD-3-Clause
// What a program does on its GPU in a step beside the communication: its kernel, the wait for it,
// and copies and memsets of its own.
#pragma once

#include "app_kernel.hpp"
#include "driver.hpp"
#include "step_cell.hpp"

#include <cstddef>

namespace gpushm::perf {

/** In the context that is current when it is made, which is current in all calls. Throws
 * std::runtime_error when the driver fails. */
class OwnWork {
public:
    explicit OwnWork(const Driver &driver);
    ~OwnWork();
    OwnWork(const OwnWork &) = delete;
    OwnWork &operator=(const OwnWork &) = delete;

    /** Behind a wait of the context, and beside copies of the program's own, the kernel runs in the
     * legacy default stream, as that of a program which knows no streams; where it overlaps the
     * exchange, in a non-blocking stream; else in a stream that the default stream waits for. */
    void launch(const StepCell &cell);
    void wait(const StepCell &cell);

    /** Of the memory at `message`, which messages come from and go to, and at `other`; kOwnBytes of
     * each. All are calls without a stream. */
    void copy(const StepCell &cell, char *message, char *other) const;
    static constexpr size_t kOwnBytes = size_t{2} << 20;

    const AppKernel &kernel() const { return kernel_; }

private:
    CUstream stream_of(const StepCell &cell) const;

    const Driver &driver_;
    const AppKernel kernel_;
    CUstream blocking_ = nullptr;
    CUstream non_blocking_ = nullptr;
    CUevent event_ = nullptr;
};

}  // namespace gpushm::perf
