// SPDX-License-Identifier: BSD-3-Clause
#include "core/cuda/unfinished_copies.hpp"

#include "core/base/fork_safe.hpp"
#include "core/base/no_throw.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace gpushm {
namespace {

CUcontext current_context() {
    CUcontext context = nullptr;
    return CudaDriver::get()->ctx_get_current(&context) == CUDA_SUCCESS ? context : nullptr;
}

int this_thread() {
    static thread_local const int id = static_cast<int>(syscall(SYS_gettid));
    return id;
}

int thread_of(UnfinishedCopies::Stream stream) {
    return stream == UnfinishedCopies::Stream::of_thread ? this_thread() : 0;
}

/** The hooks do not take this for a wait of the application. */
void synchronize(CUcontext context, unsigned long long context_id, CUstream stream) {
    const CudaDriver *driver = CudaDriver::get();
    const OwnCopies own;
    const RelaxedCapture relaxed(driver);
    const CurrentContext current(driver, context, context_id);
    if (current.result() == CUDA_SUCCESS) {
        driver->stream_synchronize(stream);
    }
}

}  // namespace

class UnfinishedCopies::Event {
public:
    Event(CUcontext context, unsigned long long context_id)
        : context_(context), context_id_(context_id) {}
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;
    ~Event() {
        const CudaDriver *driver = CudaDriver::get();
        const RelaxedCapture relaxed(driver);
        const CurrentContext current(driver, context_, context_id_);
        if (event_ != nullptr &&
            current.result() == CUDA_SUCCESS) {  // else it went with the context
            driver->event_destroy(event_);
        }
    }

    /** Of its context, which is current. */
    bool record(CUstream stream) {
        const CudaDriver *driver = CudaDriver::get();
        return (event_ != nullptr ||
                driver->event_create(&event_, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) &&
               driver->event_record(event_, stream) == CUDA_SUCCESS;
    }

    /** Returns when what it was recorded behind is done, or the context ends. */
    void wait() const {
        constexpr unsigned kImpatience = 1000;
        const CudaDriver *driver = CudaDriver::get();
        const RelaxedCapture relaxed(driver);
        const uint64_t epoch = context_epoch();
        const CurrentContext current(driver, context_, context_id_);
        if (current.result() != CUDA_SUCCESS) {
            return;
        }
        for (unsigned looks = 0; driver->event_query(event_) == CUDA_ERROR_NOT_READY; ++looks) {
            if (context_epoch() != epoch && !driver->context_is_alive(context_, context_id_)) {
                return;
            }
            if (looks > kImpatience) {
                sched_yield();
            }
        }
    }

private:
    const CUcontext context_;
    const unsigned long long context_id_;
    CUevent event_ = nullptr;
};

UnfinishedCopies &UnfinishedCopies::instance() {
    return ForkSafe<UnfinishedCopies>::instance();
}

// ---------------------------------------------------------------- places

uint64_t UnfinishedCopies::Place::last_met(const void *base) const {
    uint64_t last = met_of_any;
    for (const MetCall &call : met) {
        last = base == nullptr || call.base == base ? std::max(last, call.number) : last;
    }
    return last;
}

void UnfinishedCopies::Place::note_met(const void *base) {
    const auto found = std::find_if(met.begin(), met.end(),
                                    [base](const MetCall &call) { return call.base == base; });
    if (found != met.end()) {
        found->number = noted;
    } else if (met.size() >= kMaxMet || !as_possible([&] { met.push_back({base, noted}); })) {
        met_of_any = noted;
    }
}

/** `*lock` is taken. Null when there is no room. */
UnfinishedCopies::Place *UnfinishedCopies::lock_place(CUcontext context, int thread,
                                                      std::unique_lock<std::mutex> *lock) {
    for (Place &place : places_) {
        if (place.context.load(std::memory_order_acquire) != context ||
            place.thread.load() != thread) {
            continue;
        }
        std::unique_lock<std::mutex> held(place.mutex);
        if (place.context.load() == context && place.thread.load() == thread) {  // still
            check_context(&place);
            *lock = std::move(held);
            return &place;
        }
    }
    return take_place(context, thread, lock);
}

/** With its mutex held. */
bool UnfinishedCopies::is_free(Place *place) {
    const CUcontext used = place->context.load();
    return used == nullptr || (place->thread.load() != 0 && !place->is_open) ||
           !CudaDriver::get()->context_is_alive(used, place->context_id);
}

UnfinishedCopies::Place *UnfinishedCopies::take_place(CUcontext context, int thread,
                                                      std::unique_lock<std::mutex> *lock) {
    const std::lock_guard<std::mutex> giving(places_mutex_);
    for (const bool only_unused : {true, false}) {
        for (Place &place : places_) {
            std::unique_lock<std::mutex> held(place.mutex);
            if (only_unused ? place.context.load() != nullptr : !is_free(&place)) {
                continue;
            }
            forget(&place);
            place.context_id = CudaDriver::get()->context_id(context);
            place.epoch = context_epoch();
            place.thread.store(thread);
            place.context.store(context, std::memory_order_release);
            *lock = std::move(held);
            return &place;
        }
    }
    return nullptr;
}

/** All noted calls are done, or have gone with the context. */
void UnfinishedCopies::forget(Place *place) {
    finish(place, place->noted);
    place->behind_all = place->behind_met = {};
    place->events.clear();
}

/** Another context may have the handle by now. */
void UnfinishedCopies::check_context(Place *place) {
    const uint64_t epoch = context_epoch();
    if (place->epoch == epoch) {
        return;
    }
    const unsigned long long id = CudaDriver::get()->context_id(place->context.load());
    if (id != place->context_id) {
        forget(place);
        place->context_id = id;
    }
    place->epoch = epoch;
}

/** The first `number` calls are done. */
void UnfinishedCopies::finish(Place *place, uint64_t number) {
    place->done = std::max(place->done, number);
    update(place);
}

void UnfinishedCopies::update(Place *place) {
    const auto count = [](bool *was, bool is, std::atomic<unsigned> *counter) {
        if (std::exchange(*was, is) != is) {
            is ? counter->fetch_add(1) : counter->fetch_sub(1);
        }
    };
    const bool is_open = place->noted > place->done;
    if (!is_open) {
        place->met.clear();
        place->met_of_any = 0;
    }
    count(&place->is_open, is_open, &open_);
    count(&place->is_uncovered,
          is_open && place->thread.load() == 0 && place->noted > place->behind_all.number,
          &uncovered_);
}

// ---------------------------------------------------------------- what the application does

void UnfinishedCopies::note(Stream stream, const TouchedBytes &touched, BaseOf base_of,
                            CUcontext context) {
    context = context != nullptr ? context : current_context();
    if (context == nullptr) {
        return;
    }
    std::unique_lock<std::mutex> lock;
    Place *const place = lock_place(context, thread_of(stream), &lock);
    const CUstream handle = stream == Stream::of_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    if (place == nullptr) {
        synchronize(context, CudaDriver::get()->context_id(context), handle);
        return;
    }
    ++place->noted;
    update(place);
    // Looked up after the count has grown: a message that meets the allocation now either is seen
    // here or sees the count.
    for (const ByteRange &bytes : {touched.destination, touched.source}) {
        const void *const first = bytes.begin != nullptr ? base_of(bytes.begin) : nullptr;
        const void *const last = bytes.begin != nullptr ? base_of(bytes.last()) : nullptr;
        if (first != last) {  // others may lie between
            place->met_of_any = place->noted;
        } else if (first != nullptr) {
            place->note_met(first);
        }
    }
    if (stream == Stream::of_thread && !record(place)) {  // only this thread can, and now
        synchronize(context, place->context_id, handle);
        finish(place, place->noted);
    }
}

/** An event that no thread waits for and no mark names; null when memory is short. */
std::shared_ptr<UnfinishedCopies::Event> UnfinishedCopies::free_event(Place *place) {
    for (const std::shared_ptr<Event> &event : place->events) {
        if (event.use_count() == 1) {
            return event;
        }
    }
    std::shared_ptr<Event> event;
    as_possible([&] {
        event = std::make_shared<Event>(place->context.load(), place->context_id);
        place->events.push_back(event);
    });
    return event;
}

/** Records an event after all noted calls, with the mutex held and the context current. False when
 * that fails. */
bool UnfinishedCopies::record(Place *place) {
    if (place->behind_all.number == place->noted) {
        return true;
    }
    const std::shared_ptr<Event> event = free_event(place);
    if (event == nullptr ||
        !event->record(place->thread.load() == 0 ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD)) {
        return false;
    }
    place->behind_all = {event, place->noted};
    if (place->last_met(nullptr) > place->behind_met.number) {
        place->behind_met = place->behind_all;
    }
    return true;
}

bool UnfinishedCopies::record_in_context(Place *place) {
    const CudaDriver *driver = CudaDriver::get();
    const RelaxedCapture relaxed(driver);
    const CurrentContext current(driver, place->context.load(), place->context_id);
    return current.result() == CUDA_SUCCESS && record(place);
}

void UnfinishedCopies::record_before_others() {
    const CUcontext context = current_context();
    for (Place &place : places_) {
        if (place.context.load(std::memory_order_acquire) != context || place.thread.load() != 0) {
            continue;
        }
        const std::lock_guard<std::mutex> lock(place.mutex);
        if (place.is_uncovered && place.context.load() == context && place.thread.load() == 0 &&
            record(&place)) {
            update(&place);
        }
    }
}

void UnfinishedCopies::cover() {
    if (uncovered_.load() == 0) {
        return;
    }
    for (Place &place : places_) {
        const std::lock_guard<std::mutex> lock(place.mutex);
        if (place.is_uncovered && record_in_context(&place)) {
            update(&place);
        }
    }
}

// ---------------------------------------------------------------- waiting

/** `base`: null for all. */
void UnfinishedCopies::wait(const void *base) {
    for (Place &place : places_) {
        if (place.context.load(std::memory_order_acquire) != nullptr) {
            wait(&place, base);
        }
    }
}

void UnfinishedCopies::wait(Place *place, const void *base) {
    std::unique_lock<std::mutex> lock(place->mutex);
    const uint64_t last = base == nullptr ? place->noted : place->last_met(base);
    if (last <= place->done) {
        return;
    }
    if (place->behind_all.number < last && !record_in_context(place)) {
        const CUcontext context = place->context.load();
        const unsigned long long id = place->context_id;
        lock.unlock();
        synchronize(context, id, CU_STREAM_LEGACY);
        lock.lock();
        finish(place, last);
        return;
    }
    const Mark mark = place->behind_met.number >= last ? place->behind_met : place->behind_all;
    lock.unlock();
    mark.event->wait();
    lock.lock();
    finish(place, mark.number);
}

UnfinishedCopies::Wait::Wait(CUcontext context, std::optional<Stream> stream) {
    UnfinishedCopies &copies = UnfinishedCopies::instance();
    if (copies.open_.load() == 0) {
        return;
    }
    context_ = context != nullptr ? context : current_context();
    if (context_ == nullptr) {
        return;
    }
    for (size_t i = 0; i < kPlaces; ++i) {
        Place &place = copies.places_[i];
        covered_[i] = 0;
        if (place.context.load(std::memory_order_acquire) == context_) {
            const std::lock_guard<std::mutex> lock(place.mutex);
            covered_[i] = !stream || place.thread.load() == thread_of(*stream) ? place.noted : 0;
        }
    }
}

void UnfinishedCopies::Wait::end() {
    if (context_ == nullptr) {
        return;
    }
    UnfinishedCopies &copies = UnfinishedCopies::instance();
    for (size_t i = 0; i < kPlaces; ++i) {
        if (covered_[i] != 0) {
            const std::lock_guard<std::mutex> lock(copies.places_[i].mutex);
            copies.finish(&copies.places_[i], covered_[i]);
        }
    }
}

}  // namespace gpushm
