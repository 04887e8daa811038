// SPDX-License-Identifier: BSD-3-Clause
// Copies and memsets of the application that return before they are done.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace gpushm {

/** The synchronous forms of copies between device buffers, of copies from pageable memory and of memsets put their work
 *  into the default stream and return (CUDA driver API manual, "API synchronization behavior"). A program need not wait
 *  before it sends what they write, or receives into what they read. So hooks note each such call here, and whoever
 *  uses GPU memory for a message waits for what is noted. CU_POINTER_ATTRIBUTE_SYNC_MEMOPS would make the calls
 *  themselves wait, which costs the program 5 us for each of them (doc/early_returns.md).
 *
 *  A message must not wait for what the program starts behind such a copy: that may be a kernel which waits for the
 *  message. Where it starts something, an event is recorded first, if none is behind the copies yet.
 *
 *  Calls are counted in their default stream: `all` of them, and the last one of them that touches memory which messages
 *  have met. All functions may be called in any thread; none of them disturbs a stream capture. */
class UnfinishedCopies {
public:
    static UnfinishedCopies &instance();

    enum class Scope {
        met,  // those that touch memory which messages have met
        all,
    };
    enum class Stream { legacy, of_thread };  // the default stream of the context, or that of the calling thread in it

    /** Such a call has returned in this thread, in its current context or in `context`. If there is no room to note it,
     *  it is waited for. */
    void note(Scope scope, Stream stream);
    void note(Scope scope, Stream stream, CUcontext context);

    /** The application is about to start something else in the current context. */
    void separate() {
        if (separable_.load(std::memory_order_relaxed)) {
            record_before_others();
        }
    }

    /** Returns when what was noted before is done. A context that has ended, or cannot work any more, has nothing to
     *  wait for. */
    void wait(Scope scope) {
        if (totals_of(scope).open()) {
            wait_for_all(scope);
        }
    }

    class Wait;

private:
    /** Of an event of CUDA. Is destroyed with the context unless that has ended. */
    class Event;

    /** Of a default stream. The words are written by any thread and grow only. */
    struct Notes {
        std::atomic<CUcontext> context{nullptr};  // null: a free place
        std::atomic<int> thread{0};               // of a default stream of a thread; 0: the legacy one
        std::atomic<uint64_t> epoch{0};           // context_epoch() when the context was known to be the same
        unsigned long long context_id = 0;        // with places_mutex_ held
        std::atomic<uint64_t> all{0};
        std::atomic<uint64_t> met{0};  // the number of the last one that counts for Scope::met
        std::atomic<uint64_t> done{0};
        std::mutex event_mutex;
        uint64_t recorded = 0;         // `event` is behind so many
        std::shared_ptr<Event> event;  // whoever waits for it holds it, and then another one is recorded

        uint64_t last(Scope scope) const { return (scope == Scope::all ? all : met).load(); }
        bool is_done(Scope scope) const { return done.load() >= last(scope); }
    };

    /** Of all streams together, so that a message has to read two words where nothing is to be waited for. Who notes
     *  counts in Notes first; who waits reads `noted` first. */
    struct Totals {
        std::atomic<uint64_t> noted{0};
        std::atomic<uint64_t> done{0};
        bool open() const { return done.load(std::memory_order_acquire) < noted.load(std::memory_order_acquire); }
    };

    static constexpr size_t kPlaces = 64;

    UnfinishedCopies() = default;

    Totals &totals_of(Scope scope) { return scope == Scope::all ? all_ : met_; }
    Notes *find(CUcontext context, int thread);
    Notes *take_place(CUcontext context, int thread);
    void check_context(Notes *notes);
    static void reset(Notes *notes);
    bool record(Notes *notes);
    bool record_in_context(Notes *notes);
    void finish(Notes *notes, Scope scope);
    void record_before_others();
    void wait_for_all(Scope scope);
    void close(Scope scope);

    std::array<Notes, kPlaces> places_;
    std::mutex places_mutex_;  // held to give a place away
    std::atomic<bool> separable_{false};
    Totals all_;
    Totals met_;
};

/** A wait of the application for all of a context, or for one of its default streams: while it lives, the call is made. */
class UnfinishedCopies::Wait {
public:
    explicit Wait(CUcontext context) : Wait(context, std::nullopt) {}
    /** Of the current context. */
    Wait();
    explicit Wait(Stream stream);
    Wait(const Wait &) = delete;
    Wait &operator=(const Wait &) = delete;

    /** The call has succeeded. */
    void end();

private:
    Wait(CUcontext context, std::optional<Stream> stream);

    CUcontext context_ = nullptr;  // null: nothing is noted
    std::array<uint64_t, kPlaces> covered_;
};

}  // namespace gpushm
