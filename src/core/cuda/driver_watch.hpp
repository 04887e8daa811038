// SPDX-License-Identifier: BSD-3-Clause
// What the hooks of the driver have seen, for all code that relies on them. The hooks themselves
// lie above that code.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpushm {

/** One for the process. Only the hooks write it. Any thread. */
struct DriverWatch {
    static DriverWatch &instance();

    std::atomic<bool> allocations{false};
    std::atomic<bool> contexts{false};
    std::atomic<bool> waits{false};
    std::atomic<bool> registrations{false};
    std::atomic<bool> copies{false};
    std::atomic<bool> early_returns{false};
    std::atomic<uint64_t> contexts_gone{0};
    std::atomic<unsigned> endings{0};  // calls under way that end memory or a context
};

/** Whether the end of each allocation is noticed (install_driver_hooks()). */
bool driver_hooks_installed();

/** Whether the end of each context is noticed (watch_contexts()). */
bool contexts_are_watched();

/** Whether copies of the application from and to host memory, and what page-locks it, are noticed
 * (watch_host_memory()). */
bool host_memory_is_watched();

/** Whether copies and memsets of the application that return early are noted
 * (watch_early_returns()). */
bool early_returns_are_noted();

/** Whether standby kernels make way for calls that wait for all work of a GPU, too. */
bool driver_waits_hooked();

/** Whether some thread is in a call of the driver that ends memory or a context: it may wait for
 * all work of a GPU, and keep others from it. Unless driver_hooks_installed(), of contexts only. */
bool memory_is_ending();

/** Grows with every call that may destroy a context, before and after it; means nothing unless
 * contexts_are_watched(). While it stays, a context that was alive is alive. */
uint64_t context_epoch();

/** While it lives, copies that this thread submits are our own: they are as asynchronous as the
 * driver has them. */
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
