// SPDX-License-Identifier: BSD-3-Clause
// What gets between hosts take, measured for HostTransferWays.
#pragma once

#include "core/transport/host_transfer_ways.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpushm {

/** Those that begin together, in one call of progress or while others are under way, are measured
 * together, as one round; one that begins by itself alone. One thread at a time. */
class HostTransferRounds {
public:
    using Way = HostTransferWays::Way;

    /** For a get that begins now, of a length that is covered. `others`: some are under way;
     * `call`: of progress. */
    Way choose(size_t length, bool others, uint64_t call);
    /** The get that was begun last takes another way than that. */
    void take_back();
    /** One has ended well; `all`: nothing is under way now. */
    void note_end(bool all);
    /** Of what is under way nothing can be learnt. */
    void forget() { round_.reset(); }

private:
    using Load = HostTransferWays::Load;

    struct Round {
        Load load;
        HostTransferWays::Choice choice;
        size_t length;       // of each, or nearly
        uint64_t started;    // monotonic_nanoseconds(), if it is timed
        uint64_t ended = 0;  // the same, when nothing was under way last; 0: not yet
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
