// SPDX-License-Identifier: BSD-3-Clause
// What a writer and a reader of a litmus test share (test/gtest/core/standby/litmus_test.cpp): a
// warp polls units of core/kernels/standby_protocol.hpp that a CPU overwrites all the time. The
// reader is the kernel "simcuda_litmus" or LitmusReader, a CPU that does the same.
//
//   writer, a CPU                            reader
//   n to all words of a unit's line,  -->    each lane loads its unit, and then a word of its line
//   then litmus_unit(n) to the unit
//   reads done, and then the reports  <--    each lane stores its report; behind all of them,
//   `done`
#pragma once

#include "core/kernels/standby_protocol.hpp"

#include <cstddef>
#include <cstdint>

namespace simcuda {

constexpr const char *kLitmusKernelName = "simcuda_litmus";  // one block of kLitmusLanes threads
constexpr std::uint32_t kLitmusLanes = 32;  // the last of them looks at Litmus::stop
constexpr std::uint32_t kLitmusUnits = gpushm::kStandbyUnits;
constexpr std::uint32_t kLitmusLineWords = 16;

// Each word tells the number, so that no mixture of two units is a unit: the factor is odd, so that
// different numbers remain different, and changes all bytes from one number to the next.
inline gpushm::StandbyUnit litmus_unit(std::uint32_t number) {
    const std::uint32_t mixed = number * 2654435761u;
    return {std::uint64_t{mixed} << 32 | (mixed ^ 0xffffffffu), mixed ^ 0x5555aaaau, number};
}

// What the writer has written before a unit: its number or, meanwhile, that of a later one.
struct alignas(64) LitmusLine {
    std::uint32_t words[kLitmusLineWords];
};

struct LitmusReport {
    std::uint32_t torn;       // units that no litmus_unit() is
    std::uint32_t stale;      // words of a line that are older than the unit
    std::uint32_t backwards;  // units that are older than the one before
    std::uint32_t changes;    // units that are not the one before
    std::uint32_t polls;      // written last
};

struct alignas(64) LitmusLane {
    const gpushm::StandbyUnit *unit;  // as the reader addresses it
    const LitmusLine *line;
    LitmusReport report;
};

// In page-locked memory, all zero but for what the writer sets before it starts the reader: the
// addresses of the lanes, and litmus_unit(0) in all units.
struct Litmus {
    LitmusLane lanes[kLitmusLanes];
    alignas(64) std::uint32_t done;  // polls of which all reports are there
    alignas(128) gpushm::StandbyUnit units[kLitmusUnits];
    alignas(128) gpushm::StandbyUnit stop;  // another number than 0: the reader leaves
    alignas(128) LitmusLine lines[kLitmusUnits];
    LitmusLine stop_line;
};

struct LitmusParameters {
    Litmus *litmus;
    std::uint32_t most_polls;  // then it leaves in any case
};

// The kernel's way to what it uses.
static_assert(sizeof(LitmusLane) == 64 && offsetof(Litmus, done) == 2048 &&
              offsetof(LitmusLane, report) == 16 && offsetof(LitmusReport, polls) == 16);

class LitmusReader {
public:
    explicit LitmusReader(const LitmusParameters &parameters) : parameters_(parameters) {}

    // False when it leaves.
    bool poll();

private:
    void poll(std::uint32_t lane);

    const LitmusParameters parameters_;
    std::uint32_t last_[kLitmusLanes] = {};  // the numbers of the units that were seen before
    LitmusReport reports_[kLitmusLanes] = {};
};

}  // namespace simcuda
