// SPDX-License-Identifier: BSD-3-Clause
#include "step_times.hpp"

#include <algorithm>
#include <numeric>

namespace gpushm::perf {
namespace {

constexpr const char *kNames[kParts] = {"launch", "wait", "exchange", "copies", "reduce"};

double median_of(const std::vector<double> &values) {
    return values.empty() ? 0 : figures_of(values, 1).median;
}

/** {"name": value, ...} of the parts; those of 0 are left out. */
template <typename Value>
std::string object_of(const std::array<Value, kParts> &values) {
    std::string members;
    for (size_t part = 0; part < kParts; ++part) {
        if (values[part] != 0) {
            members += std::string(members.empty() ? "" : ", ") + "\"" + kNames[part] +
                       "\": " + std::to_string(values[part]);
        }
    }
    return "{" + members + "}";
}

}  // namespace

void StepTimes::begin() {
    current_ = {};
    last_us_ = now_us();
}

void StepTimes::add(Part part) {
    const double now = now_us();
    current_[static_cast<size_t>(part)] += now - last_us_;
    last_us_ = now;
}

void StepTimes::end() {
    steps_.push_back(current_);
}

double StepTimes::total(size_t step) const {
    return std::accumulate(steps_[step].begin(), steps_[step].end(), 0.0);
}

std::vector<double> StepTimes::totals(size_t skipped) const {
    std::vector<double> totals;
    for (size_t step = skipped; step < steps_.size(); ++step) {
        totals.push_back(total(step));
    }
    return totals;
}

StepTimes::Step StepTimes::medians(size_t skipped) const {
    Step medians;
    for (size_t part = 0; part < kParts; ++part) {
        std::vector<double> values;
        for (size_t step = skipped; step < steps_.size(); ++step) {
            values.push_back(steps_[step][part]);
        }
        medians[part] = median_of(values);
    }
    return medians;
}

std::string StepTimes::slow_steps(size_t skipped) const {
    const double median = median_of(totals(skipped));
    const Step usual = medians(skipped);
    std::array<size_t, kParts> causes = {};
    double beyond = 0;
    for (size_t step = skipped; step < steps_.size(); ++step) {
        if (total(step) > kSlow * median) {
            beyond += total(step) - median;
            Step excess;
            std::transform(steps_[step].begin(), steps_[step].end(), usual.begin(), excess.begin(),
                           std::minus<>());
            ++causes[static_cast<size_t>(std::max_element(excess.begin(), excess.end()) -
                                         excess.begin())];
        }
    }
    return "{\"of\": " + std::to_string(steps_.size() - skipped) +
           ", \"us\": " + std::to_string(beyond) + ", \"by\": " + object_of(causes) + "}";
}

std::string StepTimes::as_json(size_t skipped) const {
    skipped = std::min(skipped, steps_.size());
    return "\"parts\": " + object_of(medians(skipped)) + ", \"slow\": " + slow_steps(skipped);
}

}  // namespace gpushm::perf
