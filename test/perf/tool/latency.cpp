// SPDX-License-Identifier: BSD-3-Clause
// One message at a time.
#include "point_to_point.hpp"

#include <stdexcept>

namespace gpushm::perf {
namespace {

// Longer than a message takes to be there, on any path.
constexpr double kLateUs = 300;

// Of Situation::rotating.
constexpr unsigned kRotatingMessages = Effort::kMinSamples;

class Latency : public PointToPoint {
public:
    Latency(const Cell &cell, Ranks &ranks, const Driver *driver, size_t piece_bytes)
        : PointToPoint(cell, ranks, driver, piece_bytes) {}

    void prepare(size_t size) override {
        if (one_way() && !ranks_.share_clock()) {
            throw std::runtime_error("both ranks have to be on one node");
        }
        PointToPoint::prepare(size);
    }

    void renew_contents() override {
        PointToPoint::renew_contents();
        next_ = 0;
        wrong_.clear();
    }

    double once() override;

    size_t calls_until_complete() const override { return messages(); }

    void check() override {
        if (!wrong_.empty()) {
            throw std::runtime_error(wrong_);
        }
        PointToPoint::check();
    }

protected:
    unsigned messages() const override {
        return cell_.situation == Situation::rotating
                   ? std::min(kRotatingMessages, slots_of(size()))
                   : 1;
    }
    bool sends() const override { return is_sender() || is_round_trip(); }
    bool receives() const override { return !is_sender() || is_round_trip(); }

private:
    bool late() const { return cell_.situation == Situation::late; }
    /** Where a buffer is new for each message, preparing it must not count. */
    bool one_way() const {
        return cell_.situation == Situation::cold || (cell_.situation == Situation::one_gpu &&
                                                      takes_turns_on_one_gpu(cell_.from, cell_.to));
    }
    bool is_round_trip() const { return !late() && !one_way(); }

    double round_trip(size_t n);
    double in_one_direction();
    double received_late();

    size_t next_ = 0;    // of the rotating messages
    std::string wrong_;  // the first wrong message that has been replaced since
};

double Latency::once() {
    if (cell_.situation == Situation::cold) {
        PointToPoint::renew_contents();
        const double time = in_one_direction();
        if (wrong_.empty()) {
            wrong_ = error_of([this] { PointToPoint::check(); });
        }
        return time;
    }
    if (one_way()) {
        return in_one_direction();
    }
    return late() ? received_late() : round_trip(next_++ % messages());
}

double Latency::round_trip(size_t n) {
    if (placed_) {
        placed_->work_before();
        ranks_.barrier();
    }
    const auto receive = [this, n] {
        way_->receive(peer(), received()[n]);
        if (placed_) {
            placed_->work_after();
        }
    };
    const double work = placed_ ? placed_->work_us() : 0;
    if (is_sender()) {
        const double start = now_us();
        way_->send(peer(), sent()[n]);
        receive();
        return (now_us() - start - work) / 2;
    }
    receive();
    way_->send(peer(), sent()[n]);
    return -work / 2;
}

double Latency::in_one_direction() {
    if (is_sender()) {
        ranks_.barrier();
        const double start = now_us();
        way_->send(peer(), sent()[0]);
        ranks_.barrier();
        return -start;
    }
    way_->start_receives(peer(), received());
    ranks_.barrier();
    way_->finish();
    const double end = now_us();
    ranks_.barrier();
    return end;
}

double Latency::received_late() {
    ranks_.barrier();
    if (is_sender()) {
        way_->send(peer(), sent()[0]);
        return 0;
    }
    const double start = now_us() + kLateUs;
    while (now_us() < start) {
    }
    const double called = now_us();
    way_->receive(peer(), received()[0]);
    return now_us() - called;
}

}  // namespace

std::unique_ptr<Measurement> measure_latency(const Cell &cell, Ranks &ranks, const Driver *driver,
                                             size_t piece_bytes) {
    return std::make_unique<Latency>(cell, ranks, driver, piece_bytes);
}

}  // namespace gpushm::perf
