// SPDX-License-Identifier: BSD-3-Clause
// Many messages under way together.
#include "point_to_point.hpp"

namespace gpushm::perf {
namespace {

class Windows : public PointToPoint {
public:
    Windows(const Cell &cell, Ranks &ranks, const Driver *driver, size_t piece_bytes)
        : PointToPoint(cell, ranks, driver, piece_bytes) {}

    double once() override;

protected:
    unsigned messages() const override { return window_of(size()); }
    bool sends() const override { return is_sender() || both_ways(); }
    bool receives() const override { return !is_sender() || both_ways(); }

private:
    bool both_ways() const { return cell_.test == Test::bibw; }
    double send_window();
    double receive_window();
    double exchange_windows();
    double work_us() const { return placed_ ? placed_->work_us() : 0; }
};

double Windows::once() {
    if (placed_) {
        placed_->work_before();
        ranks_.barrier();
    }
    if (both_ways()) {
        return exchange_windows();
    }
    return is_sender() ? send_window() : receive_window();
}

double Windows::send_window() {
    char answer;
    const double start = now_us();
    way_->start_sends(peer(), sent());
    way_->finish();
    ranks_.receive(peer(), &answer, 1);
    const int pairs = ranks_.count() / 2;
    return (now_us() - start) / pairs;
}

double Windows::receive_window() {
    const char answer = 0;
    way_->start_receives(peer(), received());
    way_->finish();
    if (placed_) {
        placed_->work_after();
    }
    ranks_.send(peer(), &answer, 1);
    return -work_us();  // before the answer, so it is within the sender's time
}

/** Both work at the same time, so that the time of one contains its own work only. */
double Windows::exchange_windows() {
    const double start = now_us();
    way_->start_receives(peer(), received());
    way_->start_sends(peer(), sent());
    way_->finish();
    if (placed_) {
        placed_->work_after();
    }
    const double time = now_us() - start - work_us();
    return is_sender() ? time : 0;
}

}  // namespace

std::unique_ptr<Measurement> measure_windows(const Cell &cell, Ranks &ranks, const Driver *driver,
                                             size_t piece_bytes) {
    return std::make_unique<Windows>(cell, ranks, driver, piece_bytes);
}

}  // namespace gpushm::perf
