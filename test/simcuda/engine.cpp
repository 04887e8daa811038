// SPDX-License-Identifier: BSD-3-Clause
// The engine's threads, and the choice of what runs next.
#include "engine.hpp"

#include "call.hpp"
#include "context.hpp"
#include "device.hpp"
#include "settings.hpp"
#include "stream.hpp"
#include "stream_capture.hpp"

#include <algorithm>
#include <csignal>
#include <pthread.h>
#include <sys/prctl.h>
#include <thread>

namespace simcuda {

namespace {

// How often a value that a stream waits for is looked at.
constexpr auto kPollInterval = std::chrono::microseconds(10);

// A caller does not run operations that would keep it for long.
constexpr std::size_t kCallerBytes = 64 << 10;

// The default slack of 50 us would swallow the delays of small copies.
void sleep_exactly() {
    prctl(PR_SET_TIMERSLACK, 1000UL);
}

// A thread that the application's signal handlers are not for.
template <typename Body>
void start_detached(Body body) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread(std::move(body)).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

bool Position::passed() const {
    return stream == nullptr || stream->completed >= sequence;
}

Engine &Engine::get() {
    static Engine &engine = *new Engine;  // its threads run until the process ends
    return engine;
}

Clock::duration Engine::transfer_time(std::size_t bytes) {
    const Settings &settings = Settings::get();
    return random_time(settings.delay_us +
                       static_cast<double>(bytes) / (settings.bandwidth_gbs * 1e3));
}

Clock::duration Engine::kernel_start_time() {
    return random_time(Settings::get().kernel_start_us);
}

// With SIMCUDA_SEED, up to three-fold.
Clock::duration Engine::random_time(double microseconds) {
    const std::uint64_t seed = Settings::get().seed;
    if (random_seed_ != seed) {
        random_seed_ = seed;
        random_.seed(random_seed_);
    }
    if (random_seed_ != 0) {
        microseconds *= std::uniform_real_distribution<double>(0, 3)(random_);
    }
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double, std::micro>(microseconds));
}

Position Engine::enqueue(Lock &lock, const std::shared_ptr<Stream> &stream, Operation operation) {
    if (stream->capture != nullptr) {
        stream->capture->operations.push_back(std::move(operation));
        return {};
    }
    if (!operation.passes_frees) {
        wait_for_frees(lock, stream->context);
    }
    // CUDA driver API manual, "Stream synchronization behavior".
    if (stream->kind == Stream::Kind::legacy) {
        for (const auto &other : busy_) {
            if (other->kind == Stream::Kind::blocking && &other->context == &stream->context) {
                operation.after.push_back({other, other->enqueued});
            }
        }
    } else if (stream->kind == Stream::Kind::blocking && stream->context.legacy_stream != nullptr) {
        const auto &legacy = stream->context.legacy_stream;
        operation.after.push_back({legacy, legacy->enqueued});
    }
    const bool host_function = operation.runner == Operation::Runner::host_function;
    if (stream->queue.empty()) {
        busy_.push_back(stream);
    }
    stream->queue.push_back(std::move(operation));
    const Position position{stream, ++stream->enqueued};
    start_thread(worker_started_, Helper::worker);
    if (host_function) {
        start_thread(host_function_thread_started_, Helper::host_function_thread);
        host_function_.notify_one();
    }
    if (stream->queue.size() == 1) {
        startable(*stream, Clock::now());  // its time runs from now, not from when the worker wakes
    }
    work_.notify_one();
    return position;
}

bool Engine::blocking_work(const Context &context) const {
    return std::any_of(busy_.begin(), busy_.end(), [&](const auto &stream) {
        return stream->kind == Stream::Kind::blocking && &stream->context == &context;
    });
}

Position Engine::tail(Lock &lock, const std::shared_ptr<Stream> &stream) {
    if (stream->kind == Stream::Kind::legacy && blocking_work(stream->context)) {
        Operation join;
        join.run = [](Lock &) { return CUDA_SUCCESS; };
        return enqueue(lock, stream, std::move(join));
    }
    return {stream, stream->enqueued};
}

bool Engine::idle(Lock &, const std::shared_ptr<Stream> &stream) const {
    const bool others = stream->kind == Stream::Kind::legacy && blocking_work(stream->context);
    return !others && stream->queue.empty();
}

void Engine::wait(Lock &lock, const Position &position) {
    done_.wait(lock, [&] { return position.passed(); });
}

void Engine::wait_for_streams(Lock &lock, const std::function<bool(const Stream &)> &included) {
    std::vector<Position> tails;
    for (const auto &stream : busy_) {
        if (included(*stream)) {
            tails.push_back({stream, stream->enqueued});
        }
    }
    for (const auto &position : tails) {
        wait(lock, position);
    }
}

std::vector<Position> Engine::tails(Lock &, const Context &context) const {
    std::vector<Position> tails;
    for (const auto &stream : busy_) {
        if (&stream->context == &context) {
            tails.push_back({stream, stream->enqueued});
        }
    }
    return tails;
}

void Engine::wait_for_context(Lock &lock, const Context &context) {
    wait_for_streams(lock, [&](const Stream &stream) { return &stream.context == &context; });
}

void Engine::wait_to_free(Lock &lock, Context &context) {
    ++context.frees;
    wait_for_context(lock, context);
    --context.frees;
    done_.notify_all();
}

void Engine::wait_for_frees(Lock &lock, const Context &context) {
    done_.wait(lock, [&] { return context.frees == 0; });
}

void Engine::help(Lock &lock) {
    if (!busy_.empty()) {
        Clock::time_point next;
        const auto stream = choose(Helper::caller, &next);
        if (stream != nullptr) {
            run_first(lock, stream);
        }
    }
}

void Engine::start_thread(bool &started, Helper helper) {
    if (started) {
        return;
    }
    started = true;
    start_detached([this, helper] { serve(helper); });
}

void Engine::serve(Helper helper) {
    sleep_exactly();
    in_host_function = helper == Helper::host_function_thread;
    auto &wake_up = helper == Helper::worker ? work_ : host_function_;
    Lock lock(driver_mutex());
    for (;;) {
        Clock::time_point next = Clock::time_point::max();
        const auto stream = choose(helper, &next);
        if (stream != nullptr) {
            run_first(lock, stream);
        } else if (next == Clock::time_point::max()) {
            wake_up.wait(lock);
        } else {
            wake_up.wait_until(lock, next);
        }
    }
}

// Whether the first operation of the stream has started and is not being run by somebody.
bool Engine::startable(Stream &stream, Clock::time_point now) {
    if (stream.running) {
        return false;
    }
    Operation &operation = stream.queue.front();
    if (!operation.started) {
        for (const Position &position : operation.after) {
            if (!position.passed()) {
                return false;
            }
        }
        operation.started = true;
        operation.end = now + operation.duration;
    }
    return true;
}

// A stream whose first operation can be run now, by `helper`; null if there is none. Then `next` is
// brought forward to the time when one of those that have started ends.
std::shared_ptr<Stream> Engine::choose(Helper helper, Clock::time_point *next) {
    const auto now = Clock::now();
    std::vector<std::shared_ptr<Stream> *> ready;
    for (auto &stream : busy_) {
        if (!startable(*stream, now)) {
            continue;
        }
        const Operation &operation = stream->queue.front();
        const bool for_host_thread = operation.runner == Operation::Runner::host_function;
        const bool failed = stream->context.sticky_error != CUDA_SUCCESS;
        if (for_host_thread != (helper == Helper::host_function_thread) ||
            (helper == Helper::caller && operation.bytes > kCallerBytes)) {
            continue;
        }
        if (operation.end > now) {
            *next = std::min(*next, operation.end);
        } else if (!failed && !room_on_device(*stream)) {
            continue;  // until one ends, which wakes the worker
        } else if (!failed && operation.may_run && !operation.may_run()) {
            *next = std::min<Clock::time_point>(*next, now + kPollInterval);
        } else {
            ready.push_back(&stream);
        }
    }
    if (ready.empty()) {
        return nullptr;
    }
    if (random_seed_ != 0) {
        return *ready[random_() % ready.size()];
    }
    return **std::min_element(ready.begin(), ready.end(), [](const auto *a, const auto *b) {
        return (*a)->queue.front().end < (*b)->queue.front().end;
    });
}

// Whether what comes first in the stream finds its place on the device, if it needs one.
bool Engine::room_on_device(const Stream &stream) const {
    const Operation &first = stream.queue.front();
    const bool fills_device = first.fills_device;
    if (first.runner != Operation::Runner::kernel && !first.within_device) {
        return true;
    }
    return std::none_of(busy_.begin(), busy_.end(), [&](const auto &other) {
        const Operation &running = other->queue.front();
        return other->running && running.runner == Operation::Runner::kernel &&
               other->context.device == stream.context.device &&
               (fills_device || running.fills_device);
    });
}

void Engine::run_first(Lock &lock, const std::shared_ptr<Stream> &chosen) {
    const std::shared_ptr<Stream> stream = chosen;  // `chosen` may be a place in busy_
    // After an asynchronous failure nothing more runs in the context.
    if (stream->context.sticky_error != CUDA_SUCCESS) {
        complete_first(stream);
        return;
    }
    stream->running = true;
    if (stream->queue.front().runner == Operation::Runner::kernel) {
        run_kernel(stream);
    } else {
        run_operation(lock, stream);
    }
}

void Engine::run_kernel(const std::shared_ptr<Stream> &stream) {
    start_detached([this, stream] {
        sleep_exactly();
        Lock lock(driver_mutex());
        run_operation(lock, stream);
    });
}

void Engine::run_operation(Lock &lock, const std::shared_ptr<Stream> &stream) {
    const CUresult result = stream->queue.front().run(lock);
    stream->running = false;
    if (result != CUDA_SUCCESS && stream->context.sticky_error == CUDA_SUCCESS) {
        stream->context.sticky_error = result;
    }
    complete_first(stream);
}

void Engine::complete_first(const std::shared_ptr<Stream> &stream) {
    stream->queue.pop_front();
    ++stream->completed;
    if (stream->queue.empty()) {
        busy_.erase(std::find(busy_.begin(), busy_.end(), stream));
    }
    done_.notify_all();
    work_.notify_one();
    host_function_.notify_one();
}

}  // namespace simcuda
