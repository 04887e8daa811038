// SPDX-License-Identifier: BSD-3-Clause
#include "core/cuda/unfinished_copies.hpp"

#include "core/base/no_throw.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/cuda/driver_watch.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <new>

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

CUstream handle_of(UnfinishedCopies::Stream stream) {
    return stream == UnfinishedCopies::Stream::of_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

/** Only grows. */
void grow_to(std::atomic<uint64_t> *word, uint64_t value) {
    uint64_t now = word->load();
    while (now < value && !word->compare_exchange_weak(now, value)) {
    }
}

}  // namespace

class UnfinishedCopies::Event {
public:
    Event(CUcontext context, unsigned long long context_id) : context_(context), context_id_(context_id) {}
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;
    ~Event() {
        const CudaDriver *driver = CudaDriver::get();
        const RelaxedCapture relaxed(driver);
        const CurrentContext current(driver, context_, context_id_);
        if (event_ != nullptr && current.result() == CUDA_SUCCESS) {  // else it went with the context
            driver->event_destroy(event_);
        }
    }

    /** Of its context, which is current. */
    bool record(CUstream stream) {
        const CudaDriver *driver = CudaDriver::get();
        return (event_ != nullptr || driver->event_create(&event_, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) &&
               driver->event_record(event_, stream) == CUDA_SUCCESS;
    }

    /** Returns when what it was recorded behind is done. */
    void wait() const {
        constexpr unsigned kImpatience = 1000;
        const CudaDriver *driver = CudaDriver::get();
        const RelaxedCapture relaxed(driver);
        const CurrentContext current(driver, context_, context_id_);
        if (current.result() != CUDA_SUCCESS) {
            return;
        }
        for (unsigned looks = 0; driver->event_query(event_) == CUDA_ERROR_NOT_READY; ++looks) {
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

/** Never destroyed, for the driver is called until the very end. A forked child has no GPU work, and a thread of its
 *  parent may have had a mutex. */
UnfinishedCopies &UnfinishedCopies::instance() {
    static UnfinishedCopies *const copies = [] {
        static UnfinishedCopies *made = new UnfinishedCopies;
        pthread_atfork(nullptr, nullptr, [] { new (made) UnfinishedCopies; });
        return made;
    }();
    return *copies;
}

// ---------------------------------------------------------------- places

UnfinishedCopies::Notes *UnfinishedCopies::find(CUcontext context, int thread) {
    for (Notes &notes : places_) {
        if (notes.context.load(std::memory_order_acquire) == context &&
            notes.thread.load(std::memory_order_acquire) == thread) {
            check_context(&notes);
            return &notes;
        }
    }
    return take_place(context, thread);
}

/** Another context may have the handle by now. */
void UnfinishedCopies::check_context(Notes *notes) {
    const uint64_t epoch = context_epoch();
    if (notes->epoch.load(std::memory_order_acquire) == epoch) {
        return;
    }
    const std::lock_guard<std::mutex> lock(places_mutex_);
    const CUcontext context = notes->context.load();
    const unsigned long long id = CudaDriver::get()->context_id(context);
    if (context != nullptr && id != notes->context_id) {
        reset(notes);
        notes->context_id = id;
    }
    notes->epoch.store(epoch, std::memory_order_release);
}

/** What is noted there is done, or has gone with its context. */
void UnfinishedCopies::reset(Notes *notes) {
    const std::lock_guard<std::mutex> lock(notes->event_mutex);
    notes->event.reset();
    notes->recorded = notes->all.load();
    grow_to(&notes->done, notes->all.load());
}

/** Null when there is none. */
UnfinishedCopies::Notes *UnfinishedCopies::take_place(CUcontext context, int thread) {
    const CudaDriver *driver = CudaDriver::get();
    const std::lock_guard<std::mutex> lock(places_mutex_);
    const auto is_free = [driver](const Notes &notes) {
        const CUcontext used = notes.context.load();
        return used == nullptr || (notes.thread.load() != 0 && notes.is_done(Scope::all)) ||
               !driver->context_is_alive(used, notes.context_id);
    };
    const auto place = std::find_if(places_.begin(), places_.end(), is_free);
    if (place == places_.end()) {
        return nullptr;
    }
    place->context.store(nullptr);
    reset(&*place);
    place->context_id = driver->context_id(context);
    place->epoch.store(context_epoch());
    place->thread.store(thread);
    place->context.store(context);
    return &*place;
}

// ---------------------------------------------------------------- what the application does

void UnfinishedCopies::note(Scope scope, Stream stream) {
    if (const CUcontext context = current_context()) {
        note(scope, stream, context);
    }
}

void UnfinishedCopies::note(Scope scope, Stream stream, CUcontext context) {
    Notes *const notes = find(context, thread_of(stream));
    if (notes == nullptr) {
        const RelaxedCapture relaxed(CudaDriver::get());
        const CurrentContext current(CudaDriver::get(), context);
        CudaDriver::get()->stream_synchronize(handle_of(stream));
        return;
    }
    const uint64_t number = notes->all.fetch_add(1) + 1;
    if (scope == Scope::met) {
        grow_to(&notes->met, number);
        met_.noted.fetch_add(1);
    }
    all_.noted.fetch_add(1);
    if (stream == Stream::of_thread) {
        const std::lock_guard<std::mutex> lock(notes->event_mutex);
        record(notes);  // only this thread can, and now
    } else {
        separable_.store(true, std::memory_order_relaxed);
    }
}

/** Puts an event behind all that is noted, with event_mutex held and the context current. False when that fails: there is
 *  nothing to wait for, for the context does not work any more. */
bool UnfinishedCopies::record(Notes *notes) {
    const uint64_t all = notes->all.load();
    if (notes->event == nullptr || notes->event.use_count() > 1) {
        std::shared_ptr<Event> event;
        as_possible([&] { event = std::make_shared<Event>(notes->context.load(), notes->context_id); });
        if (event == nullptr) {
            CudaDriver::get()->stream_synchronize(CU_STREAM_LEGACY);
            return false;
        }
        notes->event = std::move(event);
    }
    if (!notes->event->record(notes->thread.load() == 0 ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD)) {
        return false;
    }
    notes->recorded = all;
    return true;
}

void UnfinishedCopies::record_before_others() {
    separable_.store(false, std::memory_order_relaxed);
    const CUcontext context = current_context();
    for (Notes &notes : places_) {
        if (notes.context.load(std::memory_order_acquire) != context || notes.thread.load() != 0) {
            continue;
        }
        const std::lock_guard<std::mutex> lock(notes.event_mutex);
        if (!notes.is_done(Scope::all) && notes.recorded < notes.all.load()) {
            record(&notes);
        }
    }
}

// ---------------------------------------------------------------- waiting

bool UnfinishedCopies::record_in_context(Notes *notes) {
    const CudaDriver *driver = CudaDriver::get();
    const RelaxedCapture relaxed(driver);
    const CurrentContext current(driver, notes->context.load(), notes->context_id);
    return current.result() == CUDA_SUCCESS && record(notes);
}

void UnfinishedCopies::finish(Notes *notes, Scope scope) {
    std::shared_ptr<Event> event;
    uint64_t covered = 0;
    {
        const std::lock_guard<std::mutex> lock(notes->event_mutex);
        covered = notes->all.load();
        if (notes->recorded >= notes->last(scope) || record_in_context(notes)) {
            covered = notes->recorded;
            event = notes->event;
        }
    }
    if (event != nullptr) {
        event->wait();
    }
    grow_to(&notes->done, covered);
}

void UnfinishedCopies::wait_for_all(Scope scope) {
    const uint64_t noted = totals_of(scope).noted.load();
    for (Notes &notes : places_) {
        if (!notes.is_done(scope)) {
            finish(&notes, scope);
        }
    }
    grow_to(&totals_of(scope).done, noted);
}

/** Where nothing is left to wait for. */
void UnfinishedCopies::close(Scope scope) {
    const uint64_t noted = totals_of(scope).noted.load();
    if (std::all_of(places_.begin(), places_.end(), [scope](const Notes &notes) { return notes.is_done(scope); })) {
        grow_to(&totals_of(scope).done, noted);
    }
}

UnfinishedCopies::Wait::Wait() : Wait(UnfinishedCopies::instance().all_.open() ? current_context() : nullptr) {}

UnfinishedCopies::Wait::Wait(Stream stream)
    : Wait(UnfinishedCopies::instance().all_.open() ? current_context() : nullptr, stream) {}

UnfinishedCopies::Wait::Wait(CUcontext context, std::optional<Stream> stream) {
    UnfinishedCopies &copies = UnfinishedCopies::instance();
    if (context == nullptr || !copies.all_.open()) {
        return;
    }
    context_ = context;
    for (size_t i = 0; i < kPlaces; ++i) {
        const Notes &notes = copies.places_[i];
        const bool is_meant = notes.context.load(std::memory_order_acquire) == context &&
                              (!stream || notes.thread.load() == thread_of(*stream));
        covered_[i] = is_meant ? notes.all.load() : 0;
    }
}

void UnfinishedCopies::Wait::end() {
    if (context_ == nullptr) {
        return;
    }
    UnfinishedCopies &copies = UnfinishedCopies::instance();
    for (size_t i = 0; i < kPlaces; ++i) {
        if (covered_[i] != 0 && copies.places_[i].context.load() == context_) {
            grow_to(&copies.places_[i].done, covered_[i]);
        }
    }
    copies.close(Scope::met);
    copies.close(Scope::all);
}

}  // namespace gpushm
