// SPDX-License-Identifier: BSD-3-Clause
// Events.
#pragma once

#include "engine.hpp"
#include "stream_capture.hpp"

namespace simcuda {

struct Event {
    Context &context;
    unsigned flags;

    // The last cuEventRecord; null if there was none. `time` is set when the stream gets there.
    struct Record {
        Position position;
        Clock::time_point time;
    };
    std::shared_ptr<Record> record;
    std::shared_ptr<Capture> capture;  // in which it was recorded last, null if in none
};

// Null if `handle` names no event.
std::shared_ptr<Event> find_event(CUevent handle);

// Forgets all events of a context.
void destroy_events(Context &context);

}  // namespace simcuda
