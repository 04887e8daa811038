// SPDX-License-Identifier: BSD-3-Clause
#include "call_tests.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace gpushm::perf {
namespace {

constexpr ucp_tag_t kTag = 1;
constexpr uint64_t kSeed = 0x63616c6c;  // any

// Longer than gpushm takes for sure that messages go on (10 ms).
constexpr unsigned kRestUs = 30'000;

constexpr double kGapUs = 50;     // between two messages
constexpr double kPauseUs = 100;  // between two calls

/** Without a call of anybody. */
void spin(double us) {
    const double end = now_us() + us;
    while (now_us() < end) {
    }
}

void call_if_any(const std::function<void()> &function) {
    if (function) {
        function();
    }
}

}  // namespace

CallTests::CallTests(const MeasuringSide &here, size_t most_bytes)
    : here_(here),
      source_(here.driver, {MemoryKind::device}, most_bytes),
      destination_(here.driver, {MemoryKind::device}, most_bytes) {}

void CallTests::prepare(size_t size) {
    size_ = size;
    source_.prepare(size, 1);
    destination_.prepare(size, 1);
    source_.prepare_source(kSeed);
    destination_.prepare_destination();
}

double CallTests::timed(const AppCall &call) const {
    const double start = now_us();
    call.call();
    const double time = now_us() - start;
    call_if_any(call.after);
    return time;
}

Figures CallTests::idle(const AppCall &call, const Effort &effort) {
    usleep(kRestUs);
    here_.side.barrier([] { usleep(1000); });
    Figures figures;
    if (here_.side.number() == 0) {
        std::vector<double> times;
        const double end = now_us() + effort.seconds * 1e6;
        while (times.size() < Effort::kMinSamples ||
               (times.size() < Effort::kMaxSamples && now_us() < end)) {
            call_if_any(call.before);
            spin(kPauseUs);
            times.push_back(timed(call));
        }
        figures = figures_of(times, 1);
    }
    here_.side.barrier([] { usleep(1000); });
    return figures;
}

Figures CallTests::after(const AppCall &call, size_t size, unsigned round_trips,
                         const Effort &effort) {
    prepare(size);
    const Figures figures = measure_on_both_sides(
        here_, [&](uint64_t count) { return calls_after(call, round_trips, count); }, effort, 1);
    destination_.check(kSeed);
    here_.side.barrier(here_.connection.progress_function());
    return figures;
}

std::vector<double> CallTests::calls_after(const AppCall &call, unsigned round_trips,
                                           uint64_t count) const {
    std::vector<double> times;
    if (here_.side.number() == 1) {
        answer(count * round_trips);
        return times;
    }
    for (uint64_t i = 0; i < count; ++i) {
        call_if_any(call.before);
        for (unsigned trip = 0; trip < round_trips; ++trip) {
            ucs_status_ptr_t receive =
                here_.connection.receive(destination_.address(0), size_, kTag);
            here_.connection.wait(here_.connection.send(source_.address(0), size_, kTag));
            here_.connection.wait(receive);
        }
        times.push_back(timed(call));
    }
    return times;
}

Figures CallTests::beside(const AppCall &call, size_t size, const Effort &effort,
                          Figures *round_trip) {
    prepare(size);
    const auto count = static_cast<uint64_t>(std::max(effort.seconds * 1e6 / kGapUs, 8.0));
    Figures figures;
    here_.side.barrier(here_.connection.progress_function());
    if (here_.side.number() == 1) {
        *round_trip = figures_of(ask(count), 1);
    } else {
        std::future<void> answers = std::async(std::launch::async, [&] {
            bind_to_cpu(here_.cpus.size() > 2 ? here_.cpus[2] : -1);
            here_.driver->use_device(here_.device);
            answer(count);
        });
        figures = figures_of(calls_until(call, answers), 1);
        answers.get();
    }
    destination_.check(kSeed);
    here_.side.barrier(here_.connection.progress_function());
    return figures;
}

/** What begins before the last answer. */
std::vector<double> CallTests::calls_until(const AppCall &call,
                                           const std::future<void> &answers) const {
    std::vector<double> times;
    do {
        call_if_any(call.before);
        spin(kPauseUs);
        times.push_back(timed(call));
    } while (answers.wait_for(std::chrono::seconds(0)) != std::future_status::ready);
    return times;
}

std::vector<double> CallTests::ask(uint64_t count) const {
    std::vector<double> times;
    for (uint64_t i = 0; i < count; ++i) {
        spin(kGapUs);
        const double start = now_us();
        ucs_status_ptr_t receive = here_.connection.receive(destination_.address(0), size_, kTag);
        here_.connection.wait(here_.connection.send(source_.address(0), size_, kTag));
        here_.connection.wait(receive);
        times.push_back(now_us() - start);
    }
    return times;
}

void CallTests::answer(uint64_t count) const {
    for (uint64_t i = 0; i < count; ++i) {
        here_.connection.wait(here_.connection.receive(destination_.address(0), size_, kTag));
        here_.connection.wait(here_.connection.send(source_.address(0), size_, kTag));
    }
}

}  // namespace gpushm::perf
