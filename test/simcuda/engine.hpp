// SPDX-License-Identifier: BSD-3-Clause
// Runs queued operations later than they were called, as a GPU does.
//
// A stream is a queue; its operations run one after the other. The first one of a queue starts once
// everything that it must come after is complete; it ends a settable time later. The bytes move at
// the end of that time, not before: whoever changes the source or reads the destination too early
// gets wrong data. Operations of different streams overlap in time, in any order that these rules
// leave; SIMCUDA_SEED makes that order random.
#pragma once

#include "driver.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

namespace simcuda {

struct Context;
struct Device;
struct Stream;

using Clock = std::chrono::steady_clock;

// A place in a stream: after its first `sequence` operations.
struct Position {
    std::shared_ptr<Stream> stream;  // null: a place that is always passed
    std::uint64_t sequence = 0;

    bool passed() const;
};

struct Operation {
    enum class Runner {
        engine,         // moves bytes, never waits for anybody
        host_function,  // calls the application, which may take its time
        kernel,         // a thread of its own, which starts when the operation's time has passed
    };

    // Does the work, called with the lock held; may let go of it meanwhile. A failure becomes the
    // context's sticky error.
    std::function<CUresult(Lock &)> run;

    Runner runner = Runner::engine;
    std::size_t bytes = 0;          // that it moves
    Clock::duration duration{0};    // from start to end, see transfer_time
    bool fills_device = false;      // a kernel that runs only while no other one does
    bool within_device = false;     // a copy that waits for a kernel which fills the device
    bool passes_frees = false;      // see Engine::wait_to_free
    std::vector<Position> after;    // what it must come after, besides its own stream's order
    std::function<bool()> may_run;  // if set: asked again and again, until true

    bool started = false;
    Clock::time_point end{};
};

class Engine {
public:
    static Engine &get();

    // Time that the copy engine takes for `bytes`, by SIMCUDA_DELAY_US and SIMCUDA_BANDWIDTH_GBS.
    Clock::duration transfer_time(std::size_t bytes);

    // Time from the launch of a kernel to its start, by SIMCUDA_KERNEL_START_US.
    Clock::duration kernel_start_time();

    // Appends to the stream, or to the graph if it is capturing, and adds what the rules of the
    // default stream ask for to `after`. Returns the place behind the operation.
    Position enqueue(Lock &lock, const std::shared_ptr<Stream> &stream, Operation operation);

    // The place behind everything that the stream has to do now. For a legacy default stream that
    // includes the blocking streams of its context.
    Position tail(Lock &lock, const std::shared_ptr<Stream> &stream);

    // The places behind everything that the streams of a context have to do now.
    std::vector<Position> tails(Lock &lock, const Context &context) const;

    // Whether everything up to that place is complete, without queueing anything.
    bool idle(Lock &lock, const std::shared_ptr<Stream> &stream) const;

    void wait(Lock &lock, const Position &position);
    void wait_for_context(Lock &lock, const Context &context);

    // For a call that frees memory of the context: waits for its work, and nobody can give it more
    // meanwhile, but for stream memory operations (seen with driver 580).
    void wait_to_free(Lock &lock, Context &context);

    // Until no such call waits.
    void wait_for_frees(Lock &lock, const Context &context);

    // For callers that ask again and again whether something is complete: runs one small operation
    // whose time has come, if there is one. Spares machines with few cores a change of threads.
    void help(Lock &lock);

private:
    enum class Helper { worker, host_function_thread, caller };

    Engine() = default;
    Clock::duration random_time(double microseconds);
    void start_thread(bool &started, Helper helper);
    void serve(Helper helper);
    std::shared_ptr<Stream> choose(Helper helper, Clock::time_point *next);
    bool blocking_work(const Context &context) const;
    bool startable(Stream &stream, Clock::time_point now);
    bool room_on_device(const Stream &stream) const;
    void run_first(Lock &lock, const std::shared_ptr<Stream> &stream);
    void run_kernel(const std::shared_ptr<Stream> &stream);
    void run_operation(Lock &lock, const std::shared_ptr<Stream> &stream);
    void complete_first(const std::shared_ptr<Stream> &stream);
    void wait_for_streams(Lock &lock, const std::function<bool(const Stream &)> &included);

    // All guarded by the driver's lock.
    std::vector<std::shared_ptr<Stream>> busy_;  // streams with queued operations
    std::mt19937_64 random_;
    std::uint64_t random_seed_ = 0;
    bool worker_started_ = false;
    bool host_function_thread_started_ = false;

    std::condition_variable work_;           // the worker waits for it
    std::condition_variable host_function_;  // the host function thread waits for it
    std::condition_variable done_;           // callers wait for it
};

}  // namespace simcuda
