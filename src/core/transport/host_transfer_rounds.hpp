// SPDX-License-Identifier: BSD-3-Clause
// The times of gets between host memory, for HostTransferWays.
#pragma once

#include "core/transport/host_transfer_ways.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpushm {

/** Gets that begin together, in one call of progress or while others are under way, are one round
 * and are timed together. A get that begins by itself is a round of its own. One thread at a time.
 */
class HostTransferRounds {
public:
    using Way = HostTransferWays::Way;

    /** For a get that begins now; the length is covered. `others`: some are under way. `call`:
     * PortServices::progress_number(). */
    Way choose(size_t length, bool others, uint64_t call);
    /** The last get takes another way than choose() said. */
    void take_back();
    /** A get has ended well. `all`: nothing is under way now. */
    void note_end(bool all);
    /** The time of what is under way tells nothing. */
    void forget() { round_.reset(); }

private:
    using Load = HostTransferWays::Load;

    struct Round {
        Load load;
        HostTransferWays::Choice choice;
        size_t length;       // of each, or nearly
        uint64_t started;    // monotonic_nanoseconds(), if it is timed
        uint64_t ended = 0;  // monotonic_nanoseconds() when nothing was under way last; 0: not yet
        uint64_t bytes = 0;
        uint32_t gets = 0;
    };

    void begin(Load load, size_t length);
    void end();

    HostTransferWays ways_;
    std::optional<Round> round_;
    uint64_t last_call_ = 0;  // in which a get began
};

}  // namespace gpushm
