// SPDX-License-Identifier: BSD-3-Clause
#include "core/cuda/driver_watch.hpp"

#include "core/base/monotonic_clock.hpp"

#include <utility>

namespace gpushm {
namespace {

thread_local bool copies_are_own;

}  // namespace

DriverWatch &DriverWatch::instance() {
    static DriverWatch watch;
    return watch;
}

void DriverWatch::note_launch() {
    launched_at.store(monotonic_nanoseconds(), std::memory_order_relaxed);
    launches.store(launches.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

bool driver_hooks_installed() {
    return DriverWatch::instance().allocations.load(std::memory_order_acquire);
}

bool contexts_are_watched() {
    return DriverWatch::instance().contexts.load(std::memory_order_acquire);
}

bool host_memory_is_watched() {
    const DriverWatch &watch = DriverWatch::instance();
    return watch.registrations.load(std::memory_order_acquire) &&
           watch.copies.load(std::memory_order_acquire);
}

bool early_returns_are_noted() {
    return DriverWatch::instance().early_returns.load(std::memory_order_acquire);
}

bool driver_waits_hooked() {
    return DriverWatch::instance().waits.load(std::memory_order_acquire);
}

bool memory_is_ending() {
    return DriverWatch::instance().endings.load(std::memory_order_acquire) != 0;
}

uint64_t context_epoch() {
    return DriverWatch::instance().contexts_gone.load(std::memory_order_acquire);
}

uint64_t application_launches() {
    return DriverWatch::instance().launches.load(std::memory_order_relaxed);
}

OwnCopies::OwnCopies() : outer_(std::exchange(copies_are_own, true)) {}

OwnCopies::~OwnCopies() {
    copies_are_own = outer_;
}

bool OwnCopies::under_way() {
    return copies_are_own;
}

}  // namespace gpushm
