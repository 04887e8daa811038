// SPDX-License-Identifier: BSD-3-Clause
// The reader of the litmus test, by the CPU.
#include "litmus.hpp"

#include "core/standby/standby_unit.hpp"

namespace simcuda {

namespace {

bool is_whole(const gpushm::StandbyUnit &unit) {
    const gpushm::StandbyUnit expected = litmus_unit(unit.tag);
    return unit.word == expected.word && unit.argument == expected.argument;
}

}  // namespace

void LitmusReader::poll(std::uint32_t lane) {
    const LitmusLane &shared = parameters_.litmus->lanes[lane];
    LitmusReport &report = reports_[lane];
    const gpushm::StandbyUnit unit = gpushm::load_unit(*shared.unit);
    if (is_whole(unit)) {
        const std::uint32_t &word = shared.line->words[unit.tag % kLitmusLineWords];
        report.stale += __atomic_load_n(&word, __ATOMIC_RELAXED) < unit.tag ? 1 : 0;
        report.backwards += unit.tag < last_[lane] ? 1 : 0;
        report.changes += unit.tag != last_[lane] ? 1 : 0;
        last_[lane] = unit.tag;
    } else {
        ++report.torn;
    }
    ++report.polls;
}

bool LitmusReader::poll() {
    Litmus &litmus = *parameters_.litmus;
    for (std::uint32_t lane = 0; lane < kLitmusLanes; ++lane) {
        poll(lane);
        LitmusReport &report = litmus.lanes[lane].report;
        __atomic_store_n(&report.torn, reports_[lane].torn, __ATOMIC_RELAXED);
        __atomic_store_n(&report.stale, reports_[lane].stale, __ATOMIC_RELAXED);
        __atomic_store_n(&report.backwards, reports_[lane].backwards, __ATOMIC_RELAXED);
        __atomic_store_n(&report.changes, reports_[lane].changes, __ATOMIC_RELAXED);
        __atomic_store_n(&report.polls, reports_[lane].polls, __ATOMIC_RELAXED);
    }
    const std::uint32_t polls = reports_[0].polls;
    __atomic_store_n(&litmus.done, polls, __ATOMIC_RELEASE);
    return last_[kLitmusLanes - 1] == 0 && polls < parameters_.most_polls;
}

}  // namespace simcuda
