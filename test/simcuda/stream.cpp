// SPDX-License-Identifier: BSD-3-Clause
// Creation, query and end of streams, and what is queued in them beside copies.
#include "stream.hpp"

#include "call.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace simcuda {

unsigned long long Stream::last_id = 0;
thread_local bool PerThreadDefault::in_use = false;

namespace {

using Streams = std::map<CUstream, std::shared_ptr<Stream>>;
using PerThreadStreams = std::map<std::pair<unsigned long, Context *>, std::shared_ptr<Stream>>;

Streams &streams() {
    static auto &all = *new Streams;
    return all;
}

PerThreadStreams &per_thread_streams() {
    static auto &all = *new PerThreadStreams;
    return all;
}

// Never that of another thread, as std::thread::id may be: its stream would be waited for, too.
unsigned long thread_number() {
    static unsigned long last = 0;  // guarded by the driver's lock
    thread_local const unsigned long number = ++last;
    return number;
}

template <typename Map>
void erase_streams_of(Map &map, const Context &context) {
    for (auto entry = map.begin(); entry != map.end();) {
        entry = &entry->second->context == &context ? map.erase(entry) : std::next(entry);
    }
}

template <typename Map>
void leave_capture(Map &map, const Capture &capture) {
    for (auto &entry : map) {
        if (entry.second->capture.get() == &capture) {
            entry.second->capture = nullptr;
        }
    }
}

// CUDA_SUCCESS if operations may be put into the stream.
CUresult usable(const Stream *stream) {
    if (stream == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const CUresult failed = stream->context.sticky_error;
    return failed != CUDA_SUCCESS ? failed : capture_state(*stream);
}

CUresult create_stream(Context &context, CUstream *handle, unsigned flags, int priority) {
    if (handle == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const auto kind =
        flags == CU_STREAM_NON_BLOCKING ? Stream::Kind::non_blocking : Stream::Kind::blocking;
    auto stream = std::make_shared<Stream>(context, kind);
    stream->priority = std::clamp(priority, kGreatestPriority, kMinPriority);
    *handle = reinterpret_cast<CUstream>(stream.get());
    streams()[*handle] = std::move(stream);
    trace_result(*handle);
    return CUDA_SUCCESS;
}

// Runs `body` with the stream, which may also belong to another context than the current one.
template <typename Body>
CUresult with_stream(Call &call, CUstream handle, Body body) {
    return call.given(handle).with_context([&](Lock &lock, Context &context) -> CUresult {
        const auto stream = find_stream(handle, context);
        if (stream == nullptr) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        const CUresult failed = stream->context.sticky_error;
        return failed != CUDA_SUCCESS ? failed : body(lock, stream);
    });
}

}  // namespace

std::shared_ptr<Stream> find_stream(CUstream handle, Context &current) {
    const bool of_thread =
        handle == CU_STREAM_PER_THREAD || (handle == nullptr && PerThreadDefault::in_use);
    if (handle == CU_STREAM_LEGACY || (handle == nullptr && !of_thread)) {
        return current.legacy_stream;
    }
    if (of_thread) {
        auto &stream = per_thread_streams()[{thread_number(), &current}];
        if (stream == nullptr) {
            stream = std::make_shared<Stream>(current, Stream::Kind::blocking);
        }
        return stream;
    }
    return find_made_stream(handle);
}

std::shared_ptr<Stream> find_made_stream(CUstream handle) {
    const auto found = streams().find(handle);
    return found == streams().end() ? nullptr : found->second;
}

CUresult find_stream_of_call(CUstream handle, std::shared_ptr<Stream> *stream) {
    *stream = find_made_stream(handle);
    if (*stream == nullptr) {
        Context *context = nullptr;
        const CUresult state = current_context(&context);
        if (state != CUDA_SUCCESS) {
            return state;
        }
        *stream = find_stream(handle, *context);
    }
    return usable(stream->get());
}

CUresult find_usable_stream(CUstream handle, Context &current, std::shared_ptr<Stream> *stream) {
    *stream = find_stream(handle, current);
    return usable(stream->get());
}

void leave_capture(const Capture &capture) {
    leave_capture(streams(), capture);
    leave_capture(per_thread_streams(), capture);
}

void destroy_streams(Context &context) {
    erase_streams_of(streams(), context);
    erase_streams_of(per_thread_streams(), context);
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned int flags, int priority) {
    static Call call{"cuStreamCreateWithPriority"};
    return call.given(flags, priority).with_context([&](Lock &lock, Context &context) {
        Engine::get().wait_for_frees(lock, context);
        return create_stream(context, handle, flags, priority);
    });
}

extern "C" CUresult cuStreamCreate(CUstream *handle, unsigned int flags) {
    static Call call{"cuStreamCreate"};
    return call.given(flags).with_context([&](Lock &lock, Context &context) {
        Engine::get().wait_for_frees(lock, context);
        return create_stream(context, handle, flags, 0);
    });
}

extern "C" CUresult cuStreamDestroy_v2(CUstream handle) {
    static Call call{"cuStreamDestroy"};
    return call.given(handle).initialised([&](Lock &) -> CUresult {
        // What is queued still runs: the engine keeps the stream until then.
        return streams().erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    });
}

extern "C" CUresult cuStreamQuery(CUstream handle) {
    static Call call{"cuStreamQuery", Call::Kind::unsafe};
    return with_stream(call, handle, [&](Lock &lock, const auto &stream) -> CUresult {
        const CUresult capturing = refuse_capturing(*stream);
        if (capturing != CUDA_SUCCESS) {
            return capturing;
        }
        Engine::get().help(lock);
        const bool idle = Engine::get().idle(lock, stream);
        const CUresult failed = stream->context.sticky_error;
        return failed != CUDA_SUCCESS ? failed : idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    });
}

extern "C" CUresult cuStreamSynchronize(CUstream handle) {
    static Call call{"cuStreamSynchronize", Call::Kind::unsafe};
    return with_stream(call, handle, [&](Lock &lock, const auto &stream) -> CUresult {
        const CUresult capturing = refuse_capturing(*stream);
        if (capturing != CUDA_SUCCESS) {
            return capturing;
        }
        Engine::get().wait(lock, Engine::get().tail(lock, stream));
        return stream->context.sticky_error;
    });
}

extern "C" CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
    static Call call{"cuStreamGetCtx"};
    return with_stream(call, handle, [&](Lock &, const auto &stream) -> CUresult {
        if (context == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *context = handle_of(&stream->context);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuStreamGetFlags(CUstream handle, unsigned int *flags) {
    static Call call{"cuStreamGetFlags"};
    return with_stream(call, handle, [&](Lock &, const auto &stream) -> CUresult {
        if (flags == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *flags =
            stream->kind == Stream::Kind::non_blocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuStreamGetPriority(CUstream handle, int *priority) {
    static Call call{"cuStreamGetPriority"};
    return with_stream(call, handle, [&](Lock &, const auto &stream) -> CUresult {
        if (priority == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *priority = stream->priority;
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuStreamGetId(CUstream handle, unsigned long long *id) {
    static Call call{"cuStreamGetId"};
    return with_stream(call, handle, [&](Lock &, const auto &stream) -> CUresult {
        if (id == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *id = stream->id;
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *argument) {
    static Call call{"cuLaunchHostFunc"};
    return with_stream(call, handle, [&](Lock &lock, const auto &stream) -> CUresult {
        if (function == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const CUresult capturing = capture_state(*stream);
        if (capturing != CUDA_SUCCESS) {
            return capturing;
        }
        Operation operation;
        operation.runner = Operation::Runner::host_function;
        operation.run = [=](Lock &held) {
            held.unlock();
            function(argument);
            held.lock();
            return CUDA_SUCCESS;
        };
        Engine::get().enqueue(lock, stream, std::move(operation));
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback function, void *argument,
                                        unsigned int flags) {
    static Call call{"cuStreamAddCallback"};
    return with_stream(call, handle, [&](Lock &lock, const auto &stream) -> CUresult {
        if (function == nullptr || flags != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const CUresult capturing = refuse_capturing(*stream);  // the manual: not supported
        if (capturing != CUDA_SUCCESS) {
            return capturing;
        }
        Operation operation;
        operation.runner = Operation::Runner::host_function;
        operation.run = [=](Lock &held) {
            held.unlock();
            function(handle, CUDA_SUCCESS, argument);
            held.lock();
            return CUDA_SUCCESS;
        };
        Engine::get().enqueue(lock, stream, std::move(operation));
        return CUDA_SUCCESS;
    });
}
