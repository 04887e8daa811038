// SPDX-License-Identifier: BSD-3-Clause
#include "sampling.hpp"

namespace gpushm::perf {
namespace {

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

}  // namespace

std::vector<double> take_samples(Ranks &ranks, Measurement &measurement, const Effort &effort) {
    const size_t count = agree_on_samples(
        effort, [&](size_t n) { return time_of(measurement, n); },
        [&](size_t own) {
            return static_cast<size_t>(ranks.told_by(0, static_cast<double>(own)));
        });
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
