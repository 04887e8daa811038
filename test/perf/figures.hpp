// SPDX-License-Identifier: BSD-3-Clause
// What is measured, for how long, and how it is told: one JSON object a line on standard output.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace gpushm::perf {

/** How long one cell of the table is measured. */
struct Effort {
    static constexpr size_t kMinSamples = 8;
    static constexpr size_t kMinWarmUps = 2;
    static constexpr size_t kMaxSamples = 20000;
    static constexpr double kWarmUpShare = 0.3;

    double seconds = 0.05;

    /** How many samples of `sample_us` fit, and how many more before them to warm up. */
    size_t samples(double sample_us) const;
    size_t warm_ups(double sample_us) const;
};

/** How many samples several processes take together, after a warm-up. `time_of` makes n of them and
 * returns us that one takes; `agree` gives each process what one of them says. */
size_t agree_on_samples(const Effort &effort, const std::function<double(size_t n)> &time_of,
                        const std::function<size_t(size_t own)> &agree);

/** Of many samples; us. */
struct Figures {
    double median = 0;
    double min = 0;
    double p99 = 0;
    double max = 0;
    size_t count = 0;
};

/** `samples` in us, each divided by `divisor`; at least one. */
Figures figures_of(std::vector<double> samples, double divisor);

/** Calls `once` until it is warm, then as often as `effort` says; the times of the calls. */
Figures repeat(const Effort &effort, double divisor, const std::function<void()> &once);

/** CLOCK_MONOTONIC, which all processes of the machine share; us. */
double now_us();

/** Messages of `size` bytes that are under way together in a window test: 64, for large ones as
 * many as make 64 MiB, but 4 at least. */
unsigned window_of(size_t size);

/** Of a window's messages, how many have a buffer of their own; beyond 64 MiB they share them. */
unsigned slots_of(size_t size);

/** The distance of slots: whole pages. */
size_t stride_of(size_t size);

/** Bytes of memory for the slots of all `sizes`. */
size_t pool_bytes(const std::vector<size_t> &sizes);

/** Prints {..., "size": size, "test": test, "us": median, ...}; `labels` and `more` are members as
 * they are in JSON, with a comma behind the first and before the second, or empty. */
void print_cell(const std::string &labels, size_t size, const char *test, const Figures &figures,
                const std::string &more = "");

/** {"driver": ..., "simulated": ..., "devices": ...} and `more`; for `description` empty: no
 * driver. */
void print_facts(const std::string &description, bool simulated, int devices,
                 const std::string &more = "");

/** {"error": text} */
void print_error(const std::string &text);

/** {"note": text}: what was not done as it should be. */
void print_note(const std::string &text);

/** With quotes. */
std::string json_string(const std::string &text);

}  // namespace gpushm::perf
