// SPDX-License-Identifier: BSD-3-Clause
// Whether the application captures streams into graphs.
#pragma once

#include "core/cuda/driver_patch.hpp"

namespace gpushm {

/** Hooks the functions that begin and end a capture, and the end of its stream. Later calls do
 * nothing. Captures that go on already are not seen. Thread safe. */
void watch_stream_captures(PatchFunction patch);

/** Whether they are hooked, all that the driver has. */
bool stream_captures_are_known();

/** While it lives, no capture begins in another thread. Means nothing unless
 * stream_captures_are_known(). */
class CapturePause {
public:
    CapturePause();
    CapturePause(const CapturePause &) = delete;
    CapturePause &operator=(const CapturePause &) = delete;
    ~CapturePause();

    /** Whether none is going on in the process, nor about to begin. */
    bool none() const;
};

}  // namespace gpushm
