// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/message_offer.hpp"

#include "core/base/monotonic_clock.hpp"
#include "core/base/no_throw.hpp"
#include "core/copy/row_packing.hpp"

#include <iterator>
#include <map>
#include <mutex>

namespace gpushm {
namespace {

// Nanoseconds.
constexpr uint64_t kPatience = 3000;

/** The offers of the process, by their blocks. Never destroyed: MPI may be used while the process
 * ends. */
struct Offers {
    std::mutex mutex;
    std::map<const void *, MessageOffer *> by_block;
};

Offers &offers() {
    static Offers *const instance = new Offers;
    return *instance;
}

}  // namespace

// ---------------------------------------------------------------- places

OfferUse OfferPlaces::open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (first_ == nullptr || ~in_use_ == 0) {
        return OfferUse();
    }
    const auto index = static_cast<uint32_t>(__builtin_ctz(~in_use_));
    in_use_ |= uint32_t{1} << index;
    last_id_ += last_id_ == UINT32_MAX ? 2 : 1;  // 0 is nobody's
    first_[index].open(last_id_);
    return {index, last_id_};
}

void OfferPlaces::end(const OfferUse &use) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (first_ != nullptr) {
        at(use).end();
    }
    in_use_ &= ~(uint32_t{1} << use.index);
}

void OfferPlaces::forget_memory() {
    const std::lock_guard<std::mutex> lock(mutex_);
    first_ = nullptr;
}

// ---------------------------------------------------------------- life

std::unique_ptr<MessageOffer> MessageOffer::create(const StridedRows &rows, const MemoryInfo &info,
                                                   void (*make_progress)()) {
    std::unique_ptr<MessageOffer> offer(new MessageOffer(rows, info, make_progress));
    if (offer->block() == nullptr) {
        return nullptr;
    }
    add_row_source(offer->block(), rows);
    const std::lock_guard<std::mutex> lock(offers().mutex);
    if (offers().by_block.size() >= kOfferedMessages) {
        return nullptr;
    }
    offers().by_block[offer->block()] = offer.get();
    return offer;
}

MessageOffer::MessageOffer(const StridedRows &rows, const MemoryInfo &info, void (*make_progress)())
    : rows_(rows),
      info_(info),
      make_progress_(make_progress),
      block_(rows.bytes(), info),
      block_id_(look_up_memory(block_.address()).buffer_id) {}

/** A copy of which the end is not known keeps its place for ever. */
MessageOffer::~MessageOffer() {
    if (block() == nullptr) {
        return;
    }
    {
        const std::lock_guard<std::mutex> lock(offers().mutex);
        offers().by_block.erase(block());
    }
    RowViews::instance().remove(block());
    if (end_copy() && use_.exists()) {
        places_->end(use_);
    }
}

std::optional<OfferUse> MessageOffer::open(const void *address, size_t length,
                                           const std::shared_ptr<OfferPlaces> *places) {
    const std::lock_guard<std::mutex> lock(offers().mutex);
    const auto &by_block = offers().by_block;
    const auto found = by_block.lower_bound(address);
    const auto behind = by_block.lower_bound(static_cast<const char *>(address) + length);
    if (found == behind || look_up_memory(found->first).buffer_id != found->second->block_id_) {
        return std::nullopt;
    }
    MessageOffer &offer = *found->second;
    if (places == nullptr || !offer.may_open_ || std::next(found) != behind) {
        return OfferUse();
    }
    offer.may_open_ = false;  // a message has one key
    offer.places_ = *places;
    offer.use_ = offer.places_->open();
    return offer.use_;
}

// ---------------------------------------------------------------- the program goes on

/** If not, it is not offered any more. */
bool MessageOffer::is_offered() {
    const std::lock_guard<std::mutex> lock(offers().mutex);
    may_open_ = false;
    return use_.exists();
}

bool MessageOffer::is_claimed() const {
    return place().phase(use_.id) != OfferedMessage::Phase::open;
}

bool MessageOffer::is_read() {
    return use_.exists() && place().phase(use_.id) == OfferedMessage::Phase::done && end_copy();
}

/** A receiver that waits for the message claims it about a microsecond after it was sent. A
 * receiver that sends at the same time, as in MPI_Sendrecv, claims it while it waits here for its
 * own message. */
bool MessageOffer::is_claimed_soon() const {
    const uint64_t end = monotonic_nanoseconds() + kPatience;
    while (!is_claimed() && monotonic_nanoseconds() < end) {
        make_progress_();
    }
    return is_claimed();
}

bool MessageOffer::detach() {
    const bool is_free = unless_short([this] { return try_detach(); }, [] { return false; });
    if (!is_free && use_.exists()) {
        place().withdraw(use_.id);  // if nobody has claimed it
    }
    return is_free;
}

bool MessageOffer::try_detach() {
    if (!is_offered()) {
        return RowViews::instance().fill_untold(block());
    }
    // In progress UCP may start to put the block, which ends with the receiver's progress only.
    RowViews::instance().hide_source(block());
    is_copied_ = !is_claimed_soon() && copy_to_place(false);
    return is_copied_ && RowViews::instance().move_source(block(), place().data) &&
           place().complete(use_.id);
}

bool MessageOffer::take_back() {
    return use_.exists() && place().phase(use_.id) == OfferedMessage::Phase::claimed &&
           unless_short([this] { return try_take_back(); }, [] { return false; });
}

bool MessageOffer::try_take_back() {
    const bool may_copy = !has_failed_ && !RowViews::instance().is_being_read(block());
    is_copied_ = is_copied_ || (may_copy && copy_to_place(true));
    return is_copied_ && RowViews::instance().move_source(block(), place().data) &&
           place().complete_claimed(use_.id);
}

// ---------------------------------------------------------------- the copy

/** False: the copy is not wanted any more, or failed. */
bool MessageOffer::copy_to_place(bool also_if_claimed) {
    if (!engine_) {
        CopyJob job = {place().data, reinterpret_cast<const void *>(rows_.address), rows_.length,
                       info_, CopyDirection::from_gpu};
        job.rows = {rows_.count, rows_.length, rows_.pitch};
        job.urgent = true;
        engine_.emplace();
        const Status started = unless_short([&] { return (*engine_)->start(job, &copy_); },
                                            [] { return Status::gpu_error; });
        if (started == Status::gpu_error) {
            engine_->discard();
            engine_.reset();
            return copy_again();
        }
    }
    Status status = (*engine_)->poll(&copy_);
    while (status == Status::in_progress && (also_if_claimed || !is_claimed())) {
        (*engine_)->progress();
        make_progress_();
        status = (*engine_)->poll(&copy_);
    }
    if (status == Status::in_progress) {
        return false;
    }
    if (status != Status::ok) {
        has_failed_ = true;
        engine_->discard();
    }
    engine_.reset();
    return status == Status::ok;
}

/** By other means, when nothing was started. */
bool MessageOffer::copy_again() {
    has_failed_ = !pack_rows(place().data, rows_);
    return !has_failed_;
}

/** False: it may still be under way. */
bool MessageOffer::end_copy() {
    if (engine_) {
        const Status ended = unless_short([this] { return (*engine_)->wait(&copy_); },
                                          [] { return Status::gpu_error; });
        if (ended != Status::ok) {
            has_failed_ = true;
            engine_->discard();
        }
        engine_.reset();
    }
    return !has_failed_;
}

}  // namespace gpushm
