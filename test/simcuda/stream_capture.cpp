// SPDX-License-Identifier: BSD-3-Clause
// Stream capture.
#include "stream_capture.hpp"

#include "call.hpp"
#include "graph.hpp"
#include "per_thread_function.hpp"

#include <algorithm>
#include <utility>

namespace simcuda {

namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// Those whose streams exist.
std::vector<std::shared_ptr<Capture>> &captures() {
    static auto &all = *new std::vector<std::shared_ptr<Capture>>;
    const auto over = [](const auto &capture) {
        return capture->ended || capture->origin.expired();
    };
    all.erase(std::remove_if(all.begin(), all.end(), over), all.end());
    return all;
}

bool prohibits_unsafe_calls(const Capture &capture) {
    if (capture.invalidated || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return false;
    }
    if (capture.thread == std::this_thread::get_id()) {
        return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    }
    return capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

// Runs `body` with the stream.
template <typename Body>
CUresult with_stream(Call &call, CUstream handle, Body body) {
    return call.given(handle).with_context([&](Lock &, Context &context) -> CUresult {
        const auto stream = find_stream(handle, context);
        return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(stream);
    });
}

CUstreamCaptureStatus status_of(const Stream &stream) {
    if (stream.capture == nullptr) {
        return CU_STREAM_CAPTURE_STATUS_NONE;
    }
    return stream.capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// The capture that a legacy default stream must not disturb, or null.
Capture *capture_beside(const Stream &stream) {
    if (stream.kind == Stream::Kind::legacy) {
        for (const auto &capture : captures()) {
            const auto origin = capture->origin.lock();
            if (origin->kind == Stream::Kind::blocking && &origin->context == &stream.context) {
                return capture.get();
            }
        }
    }
    return nullptr;
}

CUresult begin(CUstream handle, CUstreamCaptureMode mode) {
    static Call call{"cuStreamBeginCapture"};
    return with_stream(call, handle, [&](const auto &stream) -> CUresult {
        static unsigned long long last_id = 0;
        if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (stream->kind == Stream::Kind::legacy) {
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
        if (stream->capture != nullptr) {
            return CUDA_ERROR_ILLEGAL_STATE;
        }
        stream->capture =
            std::make_shared<Capture>(Capture{++last_id, mode, std::this_thread::get_id(), stream});
        captures().push_back(stream->capture);
        return CUDA_SUCCESS;
    });
}

CUresult end(const std::shared_ptr<Stream> &stream, CUgraph *graph) {
    const auto capture = stream->capture;
    if (capture == nullptr) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (capture->origin.lock() != stream) {
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    capture->ended = true;
    leave_capture(*capture);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        capture->thread != std::this_thread::get_id()) {
        *graph = nullptr;
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;  // and it is over (seen with driver 580)
    }
    *graph = capture->invalidated ? nullptr : add_graph(std::move(capture->operations));
    return capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

// What all versions of cuStreamGetCaptureInfo tell.
CUresult get_info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, bool graph_too) {
    static Call call{"cuStreamGetCaptureInfo"};
    return with_stream(call, handle, [&](const auto &stream) -> CUresult {
        if (status == nullptr || graph_too) {
            return graph_too ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
        }
        if (capture_beside(*stream) != nullptr) {
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
        *status = status_of(*stream);
        if (id != nullptr && stream->capture != nullptr) {
            *id = stream->capture->id;
        }
        return CUDA_SUCCESS;
    });
}

}  // namespace

bool unsafe_call_permitted() {
    bool permitted = true;
    for (const auto &capture : captures()) {
        if (prohibits_unsafe_calls(*capture)) {
            capture->invalidated = true;
            permitted = false;
        }
    }
    return permitted;
}

CUresult capture_state(const Stream &stream) {
    if (Capture *beside = capture_beside(stream)) {
        beside->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return stream.capture != nullptr && stream.capture->invalidated
               ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
               : CUDA_SUCCESS;
}

CUresult refuse_capturing(const Stream &stream) {
    const CUresult state = capture_state(stream);
    if (state != CUDA_SUCCESS || stream.capture == nullptr) {
        return state;
    }
    stream.capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult refuse_capturing(const Context &context) {
    CUresult result = CUDA_SUCCESS;
    for (const auto &capture : captures()) {
        if (&capture->origin.lock()->context == &context) {
            capture->invalidated = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    static Call call{"cuThreadExchangeStreamCaptureMode"};
    return call.initialised([&](Lock &) -> CUresult {
        if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
            *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        std::swap(*mode, thread_mode);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    return begin(stream, mode);
}

extern "C" CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
    static Call call{"cuStreamEndCapture"};
    return with_stream(call, handle, [&](const auto &stream) -> CUresult {
        return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : end(stream, graph);
    });
}

extern "C" CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    static Call call{"cuStreamIsCapturing"};
    return with_stream(call, handle, [&](const auto &stream) -> CUresult {
        if (status == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (capture_beside(*stream) != nullptr) {
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
        *status = status_of(*stream);
        return CUDA_SUCCESS;
    });
}

// The graph and its nodes cannot be seen while they are captured.
extern "C" CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status,
                                              cuuint64_t *id, CUgraph *graph,
                                              const CUgraphNode **nodes, std::size_t *node_count) {
    const bool graph_too = graph != nullptr || nodes != nullptr || node_count != nullptr;
    return get_info(stream, status, id, graph_too);
}

extern "C" CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status,
                                              cuuint64_t *id, CUgraph *graph,
                                              const CUgraphNode **nodes, const EdgeData **edges,
                                              std::size_t *node_count) {
    const bool graph_too =
        graph != nullptr || nodes != nullptr || edges != nullptr || node_count != nullptr;
    return get_info(stream, status, id, graph_too);
}

SIMCUDA_PER_THREAD_FUNCTION(6, cuStreamGetCaptureInfo_v2, _ptsz)
SIMCUDA_PER_THREAD_FUNCTION(7, cuStreamGetCaptureInfo_v3, _ptsz)
