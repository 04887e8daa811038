// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/host_transfer_rounds.hpp"

#include "core/base/monotonic_clock.hpp"

#include <utility>

namespace gpushm {
namespace {

// A stream of gets may never end.
constexpr uint32_t kMaxGets = 64;

}  // namespace

HostTransferRounds::Way HostTransferRounds::choose(size_t length, bool others, uint64_t call) {
    const bool is_first = call != std::exchange(last_call_, call) && !others;
    if (is_first) {
        end();
        begin(Load::alone, length);
    } else if (round_ && round_->load == Load::alone) {
        ways_.give_back(Load::alone, round_->length);
        begin(Load::crowd, length);
    } else if (round_ && round_->gets == kMaxGets) {
        round_->ended = round_->choice.is_timed ? monotonic_nanoseconds() : 0;
        end();
        begin(Load::crowd, length);
    }
    if (!round_ || !HostTransferWays::are_alike(length, round_->length)) {
        round_.reset();
        return Way::cma;
    }
    round_->bytes += length;
    ++round_->gets;
    return round_->choice.way;
}

/** A few of many do not matter. */
void HostTransferRounds::take_back() {
    if (round_ && round_->load == Load::alone) {
        round_.reset();
    }
}

void HostTransferRounds::note_end(bool all) {
    if (!round_ || !all) {
        return;
    }
    if (round_->choice.is_timed) {
        round_->ended = monotonic_nanoseconds();
    }
    if (round_->load == Load::alone) {
        end();  // of others more may begin in this call
    }
}

void HostTransferRounds::begin(Load load, size_t length) {
    const HostTransferWays::Choice choice = ways_.choose(load, length);
    round_ = Round{load, choice, length, choice.is_timed ? monotonic_nanoseconds() : 0};
}

void HostTransferRounds::end() {
    if (round_ && round_->ended != 0) {
        ways_.note(round_->load, round_->length, round_->choice.way, round_->bytes,
                   round_->ended - round_->started);
    }
    round_.reset();
}

}  // namespace gpushm
