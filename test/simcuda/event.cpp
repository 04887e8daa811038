// SPDX-License-Identifier: BSD-3-Clause
// Events: places in streams that can be asked and waited for.
#include "event.hpp"

#include "call.hpp"
#include "stream.hpp"

#include <map>

namespace simcuda {

namespace {

using Events = std::map<CUevent, std::shared_ptr<Event>>;

Events &events() {
    static auto &all = *new Events;
    return all;
}

template <typename Body>
CUresult with_event(Call &call, CUevent handle, Body body) {
    return call.given(handle).with_context([&](Lock &lock, Context &context) -> CUresult {
        const auto event = find_event(handle);
        if (event == nullptr) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        const CUresult failed = event->context.sticky_error;
        return failed != CUDA_SUCCESS ? failed : body(lock, context, event);
    });
}

bool complete(const Event &event) {
    return event.record == nullptr || event.record->position.passed();
}

CUresult record(Lock &lock, Context &context, const std::shared_ptr<Event> &event,
                CUstream handle) {
    std::shared_ptr<Stream> stream;
    const CUresult result = find_usable_stream(handle, context, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (&stream->context != &event->context) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    event->capture = stream->capture;
    if (event->capture != nullptr) {
        return CUDA_SUCCESS;  // the order of the graph's operations is that in which they come
    }
    auto record = std::make_shared<Event::Record>();
    Operation operation;
    operation.run = [record](Lock &) {
        record->time = Clock::now();
        return CUDA_SUCCESS;
    };
    record->position = Engine::get().enqueue(lock, stream, std::move(operation));
    event->record = std::move(record);
    return CUDA_SUCCESS;
}

// Behind everything in the context, in a stream that nobody else has. With driver 580 it
// invalidates the captures of the context, whatever the mode of the thread.
CUresult record_context(Lock &lock, const std::shared_ptr<Event> &event) {
    const CUresult refused = refuse_capturing(event->context);
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    event->capture = nullptr;
    auto record = std::make_shared<Event::Record>();
    Operation operation;
    operation.after = Engine::get().tails(lock, event->context);
    operation.run = [record](Lock &) {
        record->time = Clock::now();
        return CUDA_SUCCESS;
    };
    const auto stream = std::make_shared<Stream>(event->context, Stream::Kind::non_blocking);
    record->position = Engine::get().enqueue(lock, stream, std::move(operation));
    event->record = std::move(record);
    return CUDA_SUCCESS;
}

// Nobody can ask for an event that was recorded in a capture. The error after the end of the
// capture is that of driver 580.
CUresult refuse_captured(const Event &event) {
    if (event.capture == nullptr) {
        return CUDA_SUCCESS;
    }
    if (event.capture->ended) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    event.capture->invalidated = true;
    return CUDA_ERROR_CAPTURED_EVENT;
}

// What waiting for the event means to capture: a stream joins the capture of the event.
CUresult join_capture(Stream &stream, const Event &event) {
    if (stream.capture == event.capture) {
        return CUDA_SUCCESS;
    }
    if (event.capture != nullptr && event.capture->ended) {
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    if (stream.capture == nullptr) {
        stream.capture = event.capture;
        return CUDA_SUCCESS;
    }
    stream.capture->invalidated = true;
    return event.capture == nullptr ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION
                                    : CUDA_ERROR_STREAM_CAPTURE_MERGE;
}

CUresult wait_for(Lock &lock, const std::shared_ptr<Stream> &stream, const Event &event) {
    const CUresult result = join_capture(*stream, event);
    if (result != CUDA_SUCCESS || stream->capture != nullptr || complete(event)) {
        return result;
    }
    Operation operation;
    operation.run = [](Lock &) { return CUDA_SUCCESS; };
    operation.after.push_back(event.record->position);
    Engine::get().enqueue(lock, stream, std::move(operation));
    return CUDA_SUCCESS;
}

CUresult elapsed_time(float *milliseconds, CUevent start_handle, CUevent end_handle) {
    static Call call{"cuEventElapsedTime"};
    return with_event(call, start_handle, [&](Lock &, Context &, const auto &start) -> CUresult {
        const auto end = find_event(end_handle);
        if (milliseconds == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (end == nullptr || &start->context != &end->context || start->record == nullptr ||
            end->record == nullptr) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        if (!complete(*start) || !complete(*end)) {
            return CUDA_ERROR_NOT_READY;
        }
        *milliseconds =
            std::chrono::duration<float, std::milli>(end->record->time - start->record->time)
                .count();
        return CUDA_SUCCESS;
    });
}

}  // namespace

std::shared_ptr<Event> find_event(CUevent handle) {
    const auto found = events().find(handle);
    return found == events().end() ? nullptr : found->second;
}

void destroy_events(Context &context) {
    for (auto entry = events().begin(); entry != events().end();) {
        const bool of_context = &entry->second->context == &context;
        entry = of_context ? events().erase(entry) : std::next(entry);
    }
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuEventCreate(CUevent *handle, unsigned int flags) {
    static Call call{"cuEventCreate"};
    return call.given(flags).with_context([&](Lock &, Context &context) -> CUresult {
        constexpr unsigned kKnown =
            CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
        const bool timed_across_processes =
            (flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0;
        if (handle == nullptr || (flags & ~kKnown) != 0 || timed_across_processes) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        auto event = std::make_shared<Event>(Event{context, flags, nullptr, nullptr});
        *handle = reinterpret_cast<CUevent>(event.get());
        events()[*handle] = std::move(event);
        trace_result(*handle);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuEventDestroy_v2(CUevent handle) {
    static Call call{"cuEventDestroy"};
    return call.given(handle).initialised([&](Lock &) -> CUresult {
        return events().erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    });
}

extern "C" CUresult cuEventRecord(CUevent handle, CUstream stream) {
    static Call call{"cuEventRecord"};
    return with_event(call.given(stream), handle,
                      [&](Lock &lock, Context &context, const auto &event) {
                          return record(lock, context, event, stream);
                      });
}

extern "C" CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned int flags) {
    static Call call{"cuEventRecordWithFlags"};
    return with_event(
        call.given(stream), handle, [&](Lock &lock, Context &context, const auto &event) {
            return flags == 0 ? record(lock, context, event, stream) : CUDA_ERROR_INVALID_VALUE;
        });
}

extern "C" CUresult cuCtxRecordEvent(CUcontext of, CUevent handle) {
    static Call call{"cuCtxRecordEvent"};
    return with_event(call.given(of), handle, [&](Lock &lock, Context &, const auto &event) {
        return find_context(of) == &event->context ? record_context(lock, event)
                                                   : CUDA_ERROR_INVALID_HANDLE;
    });
}

extern "C" CUresult cuEventQuery(CUevent handle) {
    static Call call{"cuEventQuery", Call::Kind::unsafe};
    return with_event(call, handle, [&](Lock &lock, Context &, const auto &event) -> CUresult {
        const CUresult captured = refuse_captured(*event);
        if (captured != CUDA_SUCCESS) {
            return captured;
        }
        if (!complete(*event)) {
            Engine::get().help(lock);
        }
        const bool passed = complete(*event);
        const CUresult failed = event->context.sticky_error;
        return failed != CUDA_SUCCESS ? failed : passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    });
}

extern "C" CUresult cuEventSynchronize(CUevent handle) {
    static Call call{"cuEventSynchronize", Call::Kind::unsafe};
    return with_event(call, handle, [&](Lock &lock, Context &, const auto &event) -> CUresult {
        const CUresult captured = refuse_captured(*event);
        if (captured != CUDA_SUCCESS) {
            return captured;
        }
        if (event->record != nullptr) {
            const Position position = event->record->position;  // may be recorded again meanwhile
            Engine::get().wait(lock, position);
        }
        return event->context.sticky_error;
    });
}

#undef cuEventElapsedTime
extern "C" CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    return elapsed_time(milliseconds, start, end);
}

extern "C" CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    return elapsed_time(milliseconds, start, end);
}

extern "C" CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
    static Call call{"cuStreamWaitEvent"};
    return with_event(call.given(handle), event_handle,
                      [&](Lock &lock, Context &context, const auto &event) -> CUresult {
                          if (flags != 0) {
                              return CUDA_ERROR_INVALID_VALUE;
                          }
                          std::shared_ptr<Stream> stream;
                          const CUresult result = find_usable_stream(handle, context, &stream);
                          return result != CUDA_SUCCESS ? result : wait_for(lock, stream, *event);
                      });
}
