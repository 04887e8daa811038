// SPDX-License-Identifier: BSD-3-Clause
#include "figures.hpp"

#include <time.h>

#include <algorithm>
#include <cstdio>

namespace gpushm::perf {
namespace {

constexpr size_t kWindowBytes = size_t{64} << 20;
constexpr unsigned kMaxWindow = 64;
constexpr unsigned kMinWindow = 4;
constexpr size_t kPage = 4096;
constexpr size_t kProbes = 3;

unsigned fitting(size_t size) {
    return static_cast<unsigned>(
        std::min<size_t>(kMaxWindow, kWindowBytes / std::max<size_t>(size, 1)));
}

}  // namespace

size_t Effort::samples(double sample_us) const {
    const double wanted = seconds * 1e6 / std::max(sample_us, 1e-3);
    return static_cast<size_t>(std::clamp<double>(wanted, kMinSamples, kMaxSamples));
}

size_t Effort::warm_ups(double sample_us) const {
    const double wanted = kWarmUpShare * seconds * 1e6 / std::max(sample_us, 1e-3);
    return static_cast<size_t>(std::clamp<double>(wanted, kMinWarmUps, kMaxSamples));
}

size_t agree_on_samples(const Effort &effort, const std::function<double(size_t)> &time_of,
                        const std::function<size_t(size_t)> &agree) {
    // The first, a few, tell how many make a warm-up, and that tells how many make the samples.
    const size_t warm_ups = agree(effort.warm_ups(time_of(kProbes)));
    return agree(effort.samples(time_of(warm_ups)));
}

Figures figures_of(std::vector<double> samples, double divisor) {
    std::sort(samples.begin(), samples.end());
    Figures figures;
    figures.count = samples.size();
    figures.min = samples.front() / divisor;
    figures.median = samples[samples.size() / 2] / divisor;
    figures.p99 = samples[samples.size() * 99 / 100] / divisor;
    figures.max = samples.back() / divisor;
    return figures;
}

Figures repeat(const Effort &effort, double divisor, const std::function<void()> &once) {
    const double warm_until = now_us() + effort.seconds * Effort::kWarmUpShare * 1e6;
    for (size_t i = 0; i < Effort::kMinWarmUps || now_us() < warm_until; ++i) {
        once();
    }
    std::vector<double> samples;
    const double end = now_us() + effort.seconds * 1e6;
    for (double start = now_us(); samples.size() < Effort::kMinSamples ||
                                  (samples.size() < Effort::kMaxSamples && start < end);) {
        once();
        const double now = now_us();
        samples.push_back(now - start);
        start = now;
    }
    return figures_of(std::move(samples), divisor);
}

double now_us() {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

unsigned window_of(size_t size) {
    return std::max(kMinWindow, fitting(size));
}

unsigned slots_of(size_t size) {
    return std::max(1u, fitting(size));
}

size_t stride_of(size_t size) {
    return (size + kPage - 1) / kPage * kPage;
}

size_t pool_bytes(const std::vector<size_t> &sizes) {
    size_t bytes = kPage;
    for (const size_t size : sizes) {
        bytes = std::max(bytes, slots_of(size) * stride_of(size));
    }
    return bytes;
}

void print_cell(const std::string &labels, size_t size, const char *test, const Figures &figures,
                const std::string &more) {
    std::printf(
        "{%s\"size\": %zu, \"test\": \"%s\", \"us\": %.4f, \"min\": %.4f, \"p99\": %.4f, "
        "\"count\": %zu%s}\n",
        labels.c_str(), size, test, figures.median, figures.min, figures.p99, figures.count,
        more.c_str());
    std::fflush(stdout);
}

void print_facts(const std::string &description, bool simulated, int devices,
                 const std::string &more) {
    std::printf("{\"driver\": %s, \"simulated\": %s, \"devices\": %d%s}\n",
                description.empty() ? "null" : json_string(description).c_str(),
                simulated ? "true" : "false", devices, more.c_str());
    std::fflush(stdout);
}

void print_error(const std::string &text) {
    std::printf("{\"error\": %s}\n", json_string(text).c_str());
    std::fflush(stdout);
}

void print_note(const std::string &text) {
    std::printf("{\"note\": %s}\n", json_string(text).c_str());
    std::fflush(stdout);
}

std::string json_string(const std::string &text) {
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            quoted += '\\';
        }
        quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return quoted + '"';
}

}  // namespace gpushm::perf
