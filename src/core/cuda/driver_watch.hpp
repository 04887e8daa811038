// SPDX-License-Identifier: BSD-3-Clause
// What the hooks of the driver have seen, for all code that relies on them. The hooks themselves
// are in core/hooks, above that code.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpushm {

/** One object for the process. Only the hooks write it. Any thread. */
struct DriverWatch {
    static DriverWatch &instance();
    /** The application launches a kernel or a graph. */
    void note_launch();

    std::atomic<bool> allocations{false};
    std::atomic<bool> contexts{false};
    std::atomic<bool> waits{false};
    std::atomic<bool> registrations{false};
    std::atomic<bool> copies{false};
    std::atomic<bool> early_returns{false};
    std::atomic<uint64_t> contexts_gone{0};
    std::atomic<uint64_t> launches{0};  // threads that launch at once may count as one
    // Of the last launch, ns of CLOCK_MONOTONIC; 0: there was none. Stored before `launches`
    // (release): a reader that has loaded that (acquire) finds the time of that launch or of a
    // later one.
    std::atomic<uint64_t> launched_at{0};
    std::atomic<unsigned> endings{0};  // calls under way that end memory or a context
};

/** Whether the end of each allocation is noticed (install_driver_hooks()). */
bool driver_hooks_installed();

/** Whether the end of each context is noticed (watch_contexts()). */
bool contexts_are_watched();

/** Whether the hooks see copies of the application from and to host memory, and calls that
 * page-lock it (watch_host_memory()). */
bool host_memory_is_watched();

/** Whether the hooks note copies and memsets of the application that return early
 * (watch_early_returns()). */
bool early_returns_are_noted();

/** Whether standby kernels also leave for calls of the application that wait for all work of a
 * GPU. */
bool driver_waits_hooked();

/** Whether some thread is in a call of the driver that ends memory or a context. The driver may
 * make it wait for all work of a GPU, and keeps other threads from the driver meanwhile. Without
 * driver_hooks_installed() only ends of contexts are seen. */
bool memory_is_ending();

/** Grows with every call that may destroy a context, before and after it. While it does not change,
 * a context that was alive is alive. Meaningless unless contexts_are_watched(). */
uint64_t context_epoch();

/** How many kernels and graphs the application has launched. 0 where launches are not hooked
 * (watch_early_returns()). */
uint64_t application_launches();

/** While it lives, copies and kernels that this thread submits are gpushm's own: the hooks leave
 * copies as asynchronous as the driver makes them, and do not count the kernels. */
class OwnCopies {
public:
    OwnCopies();
    OwnCopies(const OwnCopies &) = delete;
    OwnCopies &operator=(const OwnCopies &) = delete;
    ~OwnCopies();

    /** Whether this thread has one. */
    static bool under_way();

private:
    const bool outer_;  // what holds again when this one ends
};

}  // namespace gpushm
