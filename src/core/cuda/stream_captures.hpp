// SPDX-License-Identifier: BSD-3-Clause
// Whether the application captures streams into graphs.
#pragma once

#include "core/cuda/driver_patch.hpp"

namespace gpushm {

/** Hooks the functions that begin and end a capture, and that destroy a stream. Captures that are
 * going on already are not seen. Later calls do nothing. Thread safe. */
void watch_stream_captures(PatchFunction patch);

/** Whether all of these functions that the driver has are hooked. */
bool stream_captures_are_known();

/** While it lives, no capture begins in another thread. Means nothing unless
 * stream_captures_are_known(). */
class CapturePause {
public:
    CapturePause();
    CapturePause(const CapturePause &) = delete;
    CapturePause &operator=(const CapturePause &) = delete;
    ~CapturePause();

    /** Whether no capture of the process is going on or about to begin. */
    bool none() const;
};

}  // namespace gpushm
