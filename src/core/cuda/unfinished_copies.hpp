// SPDX-License-Identifier: BSD-3-Clause
// Copies and memsets of the application that return before they are done.
#pragma once

#include "core/base/byte_range.hpp"
#include "core/base/fork_safe.hpp"

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace gpushm {

/** Some synchronous calls put their work into the default stream and return before it is done:
 * copies between device buffers, copies from pageable memory, and memsets (CUDA driver API manual,
 * "API synchronization behavior"). A program need not wait before it sends what they write, or
 * receives into what they read. So hooks note each such call here, and code that uses GPU memory
 * for a message waits for the calls that are noted for it. With CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
 * the calls themselves would wait, which slows the program (doc/design/early-returns.md).
 *
 * A message must not wait for what the program starts after such a copy: that may be a kernel which
 * waits for the message. So an event is recorded before the program starts something else, unless
 * an event already follows the copies.
 *
 * All functions may be called in any thread; none of them disturbs a stream capture. */
class UnfinishedCopies {
public:
    static UnfinishedCopies &instance();

    /** The default stream of the context, or that of the calling thread in it. */
    enum class Stream { legacy, of_thread };

    /** The base of the allocation that an address lies in, if messages have met it or are about to;
     * else null. */
    using BaseOf = const void *(*)(const void *address);

    /** A call has returned in this thread, in `context`; null: in its current one. A range over
     * several allocations counts for all memory. If there is no room to note the call, this waits
     * for it. */
    void note(Stream stream, const TouchedBytes &touched, BaseOf base_of,
              CUcontext context = nullptr);

    /** The application is about to start other work in the current context. */
    void separate() {
        if (uncovered_.load(std::memory_order_relaxed) != 0) {
            record_before_others();
        }
    }

    /** The application is about to capture a stream: if it is a blocking one, no event can be
     * recorded meanwhile. */
    void cover();

    /** Returns when the calls noted for that allocation, which messages have met, are done. A
     * context that has ended, or cannot work any more, has nothing to wait for. */
    void wait_for(const void *base) {
        if (open_.load() != 0) {
            wait(base);
        }
    }
    /** Returns when all noted calls are done: for memory that no message had met when they were
     * noted. */
    void wait_for_all() {
        if (open_.load() != 0) {
            wait(nullptr);
        }
    }

    class Wait;

private:
    friend class ForkSafe<UnfinishedCopies>;
    /** A CUDA event, destroyed with its context unless that has ended. */
    class Event;

    /** An event that follows the first `number` calls. */
    struct Mark {
        std::shared_ptr<Event> event;
        uint64_t number = 0;
    };

    struct MetCall {
        const void *base;
        uint64_t number;
    };

    /** A default stream. Calls are counted; counts only grow. */
    struct Place {
        // To find it. Written with places_mutex_ and `mutex` held.
        std::atomic<CUcontext> context{nullptr};  // null: it is free
        std::atomic<int> thread{0};  // that has the default stream; 0: the legacy stream

        std::mutex mutex;  // for all that follows
        unsigned long long context_id = 0;
        uint64_t epoch = 0;  // context_epoch() when the context was last known to have context_id
        uint64_t noted = 0;
        uint64_t done = 0;
        std::vector<MetCall> met;  // the last one of each allocation
        uint64_t met_of_any =
            0;            // the last one for which `met` had no room, or of several allocations
        Mark behind_met;  // an event that follows calls of `met`, and few others
        Mark behind_all;
        std::vector<std::shared_ptr<Event>> events;  // to be used again
        bool is_open = false;                        // counts in open_
        bool is_uncovered = false;                   // counts in uncovered_

        /** The last call on that allocation; null: on any that messages have met. */
        uint64_t last_met(const void *base) const;
        void note_met(const void *base);
    };

    static constexpr size_t kPlaces = 64;
    static constexpr size_t kMaxMet = 16;

    UnfinishedCopies() = default;

    Place *lock_place(CUcontext context, int thread, std::unique_lock<std::mutex> *lock);
    Place *take_place(CUcontext context, int thread, std::unique_lock<std::mutex> *lock);
    static bool is_free(Place *place);
    void check_context(Place *place);
    void forget(Place *place);
    void finish(Place *place, uint64_t number);
    void update(Place *place);
    static std::shared_ptr<Event> free_event(Place *place);
    static bool record(Place *place);
    static bool record_in_context(Place *place);
    void record_before_others();
    void wait(const void *base);
    void wait(Place *place, const void *base);

    std::array<Place, kPlaces> places_;
    std::mutex places_mutex_;             // held to give a place away; before that of a place
    std::atomic<unsigned> open_{0};       // places with a call that is not known to be done
    std::atomic<unsigned> uncovered_{0};  // of legacy streams, with a call that no event is behind
};

/** A wait of the application for all work of a context, or of one of its default streams. It lives
 * while the call is made. */
class UnfinishedCopies::Wait {
public:
    /** Null: of the current context. No stream: for all work. */
    explicit Wait(CUcontext context = nullptr, std::optional<Stream> stream = std::nullopt);
    Wait(const Wait &) = delete;
    Wait &operator=(const Wait &) = delete;

    /** The call has succeeded. */
    void end();

private:
    CUcontext context_ = nullptr;  // null: nothing is noted
    std::array<uint64_t, kPlaces> covered_;
};

}  // namespace gpushm
