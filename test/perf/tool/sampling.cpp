// SPDX-License-Identifier: BSD-3-Clause
#include "sampling.hpp"

namespace gpushm::perf {
namespace {

constexpr size_t kProbes = 3;
constexpr int kValidations = 2;

std::vector<double> repeat(Measurement &measurement, size_t count) {
    std::vector<double> times;
    for (size_t i = 0; i < count; ++i) {
        times.push_back(measurement.once());
    }
    return times;
}

/** us that one takes, with what is done before it. */
double time_of(Measurement &measurement, size_t count) {
    const double start = now_us();
    repeat(measurement, count);
    return (now_us() - start) / static_cast<double>(count);
}

size_t agreed(Ranks &ranks, size_t count) {
    return static_cast<size_t>(ranks.told_by(0, static_cast<double>(count)));
}

}  // namespace

std::vector<double> take_samples(Ranks &ranks, Measurement &measurement, const Effort &effort) {
    // The first, a few, tell how many make a warm-up, and that tells how many make the samples.
    const size_t warm_ups = agreed(ranks, effort.warm_ups(time_of(measurement, kProbes)));
    const size_t count = agreed(ranks, effort.samples(time_of(measurement, warm_ups)));
    ranks.barrier();
    std::vector<double> samples = repeat(measurement, count);
    ranks.add_up(&samples);
    return samples;
}

std::string validate(Ranks &ranks, Measurement &measurement) {
    std::string wrong;
    for (int i = 0; i < kValidations; ++i) {
        measurement.renew_contents();
        ranks.barrier();
        repeat(measurement, measurement.calls_until_complete());
        if (wrong.empty()) {
            wrong = error_of([&] { measurement.check(); });
        }
        ranks.barrier();  // the contents of all stay until all have looked
    }
    return wrong;
}

}  // namespace gpushm::perf
