// SPDX-License-Identifier: BSD-3-Clause
// Streams.
#pragma once

#include "context.hpp"
#include "engine.hpp"
#include "stream_capture.hpp"

#include <deque>

namespace simcuda {

// As the manual has it, smaller numbers are greater priorities. They are kept and reported; the
// engine does not prefer anybody.
constexpr int kMinPriority = 0;
constexpr int kGreatestPriority = -5;

struct Stream {
    enum class Kind {
        legacy,        // the default stream of a context: it and blocking ones wait for each other
        blocking,      // cuStreamCreate without flags, and the per-thread default streams
        non_blocking,  // CU_STREAM_NON_BLOCKING
    };

    Stream(Context &owner, Kind stream_kind) : context(owner), kind(stream_kind), id(++last_id) {}

    Context &context;
    const Kind kind;
    int priority = 0;
    const unsigned long long id;

    std::shared_ptr<Capture> capture;  // null if it is not capturing

    // The engine's, see engine.cpp.
    std::deque<Operation> queue;
    std::uint64_t enqueued = 0;   // operations ever
    std::uint64_t completed = 0;  // operations ever; never more than `enqueued`
    bool running = false;         // somebody runs the first of the queue, without the lock

private:
    static unsigned long long last_id;
};

// While it lives, the default stream of the calling thread's calls is that of the thread, not the
// legacy one.
class PerThreadDefault {
public:
    PerThreadDefault() { in_use = true; }
    ~PerThreadDefault() { in_use = false; }
    PerThreadDefault(const PerThreadDefault &) = delete;

    static thread_local bool in_use;
};

// Null if `handle` names no stream; a null handle is the default stream. Default streams belong to
// `current`.
std::shared_ptr<Stream> find_stream(CUstream handle, Context &current);

// The same, and whether operations may be put into it: else the asynchronous failure of its context
// or an error of stream capture.
CUresult find_usable_stream(CUstream handle, Context &current, std::shared_ptr<Stream> *stream);

// A stream that the program made, which needs no current context; null for another handle.
std::shared_ptr<Stream> find_made_stream(CUstream handle);

// The same for a call that needs a current context only for default streams (seen of copies with
// driver 580).
CUresult find_stream_of_call(CUstream handle, std::shared_ptr<Stream> *stream);

// No stream is capturing for `capture` any more.
void leave_capture(const Capture &capture);

// Forgets all streams of a context.
void destroy_streams(Context &context);

}  // namespace simcuda
