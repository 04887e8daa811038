// SPDX-License-Identifier: BSD-3-Clause
// Stream capture: what is queued in a capturing stream becomes part of a graph instead. Meanwhile
// calls that the driver cannot capture are prohibited (manual of the driver API,
// cuThreadExchangeStreamCaptureMode): they fail, and so does the capture in the end. The manual
// does not list them all; those that conformance_capture.cpp names are as in driver 580.
#pragma once

#include "engine.hpp"

#include <thread>

namespace simcuda {

struct Capture {
    unsigned long long id;  // never 0, never reused
    CUstreamCaptureMode mode;
    std::thread::id thread;        // which began it
    std::weak_ptr<Stream> origin;  // in which it began; others join it by events
    bool invalidated = false;
    bool ended = false;
    std::vector<Operation> operations{};  // in an order in which they may run
};

// Whether the calling thread may make a potentially unsafe call now. If not, it has invalidated the
// captures that prohibit it.
bool unsafe_call_permitted();

// CUDA_SUCCESS if operations may be put into the stream: not if the capture was invalidated, and
// not into a legacy default stream beside which a blocking stream is capturing, which invalidates
// that.
CUresult capture_state(const Stream &stream);

// For calls that cannot be made of a stream that is capturing: CUDA_SUCCESS if it is not, else
// invalidates.
CUresult refuse_capturing(const Stream &stream);

// The same of all streams of a context.
CUresult refuse_capturing(const Context &context);

}  // namespace simcuda
