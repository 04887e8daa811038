// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/datatypes/offered_sends.hpp"

#include "core/base/attempts.hpp"
#include "core/base/monotonic_clock.hpp"
#include "core/base/no_throw.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/standby/gpu_sharing.hpp"
#include "core/transport/claimed_read.hpp"
#include "core/transport/message_offer.hpp"
#include "openmpi/binding/no_throw_calls.hpp"
#include "openmpi/binding/open_mpi_progress.hpp"
#include "openmpi/binding/ucp_functions.hpp"
#include "openmpi/settings/other_transports.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace gpushm::openmpi {
namespace {

// Bytes. Shorter messages are quicker in host memory where the standby kernel copies them; nobody
// else uses the GPU then (doc/decisions/openmpi-fast-completion.md).
constexpr uint64_t kShortestOffer = 256;

bool can_wait = false;  // constant after prepare_offered_sends()

bool has_offered_length(uint64_t bytes, const MemoryInfo &info) {
    const bool is_shared = GpuSharing::instance().others(info.device) != GpuSharing::Others::none;
    return bytes <= MessageOffer::kMostBytes && (is_shared || bytes >= kShortestOffer);
}

/** Whether receivers behind an endpoint copy what they are offered. Never destroyed: MPI may be
 * used while the process ends. */
class Receivers {
public:
    static Receivers &instance() {
        static Receivers *const receivers = new Receivers;
        return *receivers;
    }
    bool may_be_offered(ucp_ep_h ep) {
        const std::lock_guard<std::mutex> lock(mutex_);
        return attempts_[ep].may_try();
    }
    void note(ucp_ep_h ep, bool copied) {
        const std::lock_guard<std::mutex> lock(mutex_);
        attempts_[ep].note(copied);
        if (attempts_.size() > kMostEndpoints) {
            attempts_.clear();  // most of them have ended
        }
    }

private:
    static constexpr size_t kMostEndpoints = 1u << 14;

    std::mutex mutex_;
    std::unordered_map<ucp_ep_h, Attempts> attempts_;
};

/** A message that UCP sends. Belongs to the thread of MPI_Send, until that lets it go; then to
 * UCP's callback. */
class OfferedSend {
public:
    explicit OfferedSend(std::unique_ptr<MessageOffer> offer) : offer_(std::move(offer)) {}

    MessageOffer &offer() { return *offer_; }

    /** UCP has completed the message. */
    static void on_sent(void *request, ucs_status_t status, void *send) {
        auto *const self = static_cast<OfferedSend *>(send);
        self->status_ = status;
        if (self->stage_.exchange(Stage::sent, std::memory_order_acq_rel) == Stage::let_go) {
            delete self;
            ucp().request_free(request);
        }
    }
    /** MPI_Send returns. False: UCP has completed the message before. */
    bool let_go() {
        Stage expected = Stage::under_way;
        return stage_.compare_exchange_strong(expected, Stage::let_go, std::memory_order_acq_rel);
    }
    bool is_sent() const { return stage_.load(std::memory_order_acquire) == Stage::sent; }
    /** After is_sent(). */
    ucs_status_t status() const { return status_; }

    enum class End { completed, read, taken_back };
    /** Makes progress until UCP has completed the message, or the program may use its memory. */
    End wait() {
        const uint64_t late = monotonic_nanoseconds() + kPatience;
        while (!is_sent()) {
            make_progress();
            if (offer_->is_read()) {
                return End::read;
            }
            if (monotonic_nanoseconds() > late && offer_->take_back()) {
                return End::taken_back;
            }
        }
        return End::completed;
    }

private:
    // Nanoseconds. A receiver that has claimed the message has read it 5 to 8 us later, unless it
    // has left MPI.
    static constexpr uint64_t kPatience = 30'000;

    enum class Stage { under_way, sent, let_go };

    const std::unique_ptr<MessageOffer> offer_;
    ucs_status_t status_ = UCS_OK;  // written before `sent`
    std::atomic<Stage> stage_{Stage::under_way};
};

/** Makes progress until as many messages have been read as were claimed since `before`, but not for
 * long. They were claimed in this thread's progress, or in another thread's; their senders wait. */
void finish_claimed_reads(const ClaimedRead::Totals &before) {
    constexpr uint64_t kReading = 10'000;  // nanoseconds; a message takes 5 to 8 us
    const unsigned claimed = ClaimedRead::totals().begun - before.begun;
    const uint64_t late = monotonic_nanoseconds() + kReading;
    while (ClaimedRead::totals().ended - before.ended < claimed && monotonic_nanoseconds() < late) {
        make_progress();
    }
}

std::unique_ptr<OfferedSend> make_offered_send(const StridedRows &rows, const MemoryInfo &info) {
    return unless_short(
        [&] {
            std::unique_ptr<MessageOffer> offer = MessageOffer::create(rows, info, make_progress);
            return offer != nullptr ? std::make_unique<OfferedSend>(std::move(offer)) : nullptr;
        },
        [] { return std::unique_ptr<OfferedSend>(); });
}

ucs_status_ptr_t submit(ucp_ep_h ep, OfferedSend &send, size_t bytes, ucp_tag_t tag) {
    ucp_request_param_t parameters = {};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    parameters.cb.send = OfferedSend::on_sent;
    parameters.user_data = &send;
    return ucp().tag_send_nbx(ep, send.offer().block(), bytes, tag, &parameters);
}

}  // namespace

void prepare_offered_sends(const OpenMpiLibrary &library) {
    can_wait = find_progress(library);
}

std::optional<ucs_status_ptr_t> send_offered(ucp_ep_h ep, const StridedRows &rows,
                                             const MemoryInfo &info, ucp_tag_t tag) {
    Receivers &receivers = Receivers::instance();
    if (!can_wait || !has_offered_length(rows.bytes(), info) || others_reach_gpu_memory() ||
        !make_buffer_key(info).can_be_mapped() || !receivers.may_be_offered(ep)) {
        return std::nullopt;
    }
    std::unique_ptr<OfferedSend> send = make_offered_send(rows, info);
    if (send == nullptr) {
        return std::nullopt;
    }
    const ucs_status_ptr_t request = submit(ep, *send, rows.bytes(), tag);
    if (!UCS_PTR_IS_PTR(request)) {
        receivers.note(ep, false);
        return request;
    }
    using End = OfferedSend::End;
    const ClaimedRead::Totals before = ClaimedRead::totals();
    const End end = send->offer().detach() ? End::taken_back : send->wait();
    finish_claimed_reads(before);
    receivers.note(ep, end != End::taken_back);
    if (end != End::completed && send->let_go()) {
        (void)send.release();
        return nullptr;
    }
    const ucs_status_t status = send->status();
    ucp().request_free(request);
    return status == UCS_OK ? nullptr : UCS_STATUS_PTR(status);
}

}  // namespace gpushm::openmpi
