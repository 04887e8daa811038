// SPDX-License-Identifier: BSD-3-Clause
#include "results.hpp"

#include "config.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <stdexcept>

namespace gpushm::perf {
namespace {

// OSU's columns.
constexpr int kSizeWidth = 10;
constexpr int kWidth = 18;

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts = {};
    char text[32];
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
    return text;
}

std::string text_or_null(const std::string &text) {
    return text.empty() ? "null" : json_string(text);
}

/** The elements, separated by commas. */
std::string joined(const std::vector<std::string> &elements, const char *separator) {
    std::string text;
    for (const std::string &element : elements) {
        text += (text.empty() ? "" : separator) + element;
    }
    return text;
}

std::string labels_of(const Cell &cell) {
    return "{\"test\": " + json_string(name_of(cell.test)) +
           ", \"from\": " + json_string(name_of(cell.from)) +
           ", \"to\": " + json_string(name_of(cell.to)) +
           ", \"situation\": " + json_string(name_of(cell.situation));
}

std::string json_of(const Cell &cell, const Row &row) {
    std::ostringstream text;
    text.precision(10);
    text << labels_of(cell) << ", \"size\": " << row.size << ", \"value\": " << row.value
         << ", \"unit\": \"" << unit_of(cell) << "\", \"min\": " << row.min
         << ", \"p50\": " << row.p50 << ", \"p99\": " << row.p99 << ", \"max\": " << row.max
         << ", \"messages\": " << row.messages << ", \"validated\": true";
    if (row.has_faults) {
        text << ", \"page_faults\": {\"cpu\": " << row.faults.cpu;
        if (row.cupti_counts) {
            text << ", \"managed_cpu\": " << row.faults.managed_cpu
                 << ", \"gpu\": " << row.faults.gpu << "}";
        } else {
            text << ", \"managed_cpu\": null, \"gpu\": null}";
        }
    }
    text << "}";
    return text.str();
}

const char *column_of(const Cell &cell) {
    if (cell.measures_time()) {
        return "Latency (us)";
    }
    return cell.test == Test::mbw_mr ? "MB/s" : "Bandwidth (MB/s)";
}

/** The last line of a head. */
std::string columns_of(const Cell &cell) {
    if (cell.test == Test::barrier) {
        return std::string("# ") + column_of(cell);
    }
    std::vector<const char *> columns = {column_of(cell)};
    if (cell.test == Test::mbw_mr) {
        columns.push_back("Messages/s");
    }
    if (cell.is_placed()) {
        columns.insert(columns.end(), {"CPU faults", "CPU, managed", "GPU faults"});
    }
    std::ostringstream line;
    line << std::left << std::setw(kSizeWidth) << "# Size" << std::right;
    for (const char *column : columns) {
        line << std::setw(kWidth) << column;
    }
    return line.str();
}

}  // namespace

Results::Results(const RunFacts &facts, const std::string &json_file, size_t row_count)
    : facts_(facts),
      json_file_(json_file),
      date_(utc_now()),
      row_count_(row_count),
      shows_progress_(isatty(STDERR_FILENO) != 0) {
    write_json();
}

Results::~Results() {
    clear_progress();
}

void Results::clear_progress() const {
    if (shows_progress_) {
        std::fputs("\r\033[K", stderr);
    }
}

void Results::begin(const Cell &cell, const std::string &refusal) {
    clear_progress();
    const std::string kinds =
        cell.test == Test::barrier ? "" : name_of(cell.from) + "-" + name_of(cell.to) + " ";
    std::printf("\n# %s %s %s%s Test v%s\n# Situation: %s.%s\n", facts_.program.c_str(),
                facts_.carrier.c_str(), kinds.c_str(), title_of(cell.test).c_str(), PACKAGE_VERSION,
                name_of(cell.situation).c_str(),
                facts_.simulated ? " Simulated driver: the times mean nothing." : "");
    if (!refusal.empty()) {
        std::printf("# Page faults of managed memory are not counted: %s.\n", refusal.c_str());
    }
    std::printf("%s\n", columns_of(cell).c_str());
    std::fflush(stdout);
}

void Results::announce(const Cell &cell, size_t size) {
    ++announced_;
    if (shows_progress_) {
        std::fprintf(stderr, "\r\033[K[%zu of %zu] %s, %s to %s, %s, %zu bytes", announced_,
                     row_count_, name_of(cell.test).c_str(), name_of(cell.from).c_str(),
                     name_of(cell.to).c_str(), name_of(cell.situation).c_str(), size);
    }
}

void Results::add(const Cell &cell, const Row &row) {
    clear_progress();
    if (cell.test == Test::barrier) {
        std::printf("%*.2f", kWidth, row.value);
    } else if (cell.test == Test::mbw_mr) {
        std::printf("%-*zu%*.2f%*.2f", kSizeWidth, row.size, kWidth, megabytes(row.size, row.value),
                    kWidth, row.value);
    } else {
        std::printf("%-*zu%*.2f", kSizeWidth, row.size, kWidth, row.value);
    }
    if (row.has_faults) {
        std::printf("%*.1f", kWidth, row.faults.cpu);
        if (row.cupti_counts) {
            std::printf("%*.1f%*.1f", kWidth, row.faults.managed_cpu, kWidth, row.faults.gpu);
        } else {
            std::printf("%*s%*s", kWidth, "refused", kWidth, "refused");
        }
    }
    std::printf("\n");
    std::fflush(stdout);
    measured_.push_back({cell, row});
    rows_.push_back(json_of(cell, row));
    write_json();
}

void Results::fail(const Cell &cell, const std::string &text) {
    clear_progress();
    std::fprintf(stderr, "%s: %s, %s to %s, %s: %s\n", facts_.program.c_str(),
                 name_of(cell.test).c_str(), name_of(cell.from).c_str(), name_of(cell.to).c_str(),
                 name_of(cell.situation).c_str(), text.c_str());
    errors_.push_back(labels_of(cell) + ", \"text\": " + json_string(text) + "}");
    write_json();
}

void Results::finish() const {
    clear_progress();
    const std::vector<std::string> lines = improvement_table(measured_);
    if (!lines.empty()) {
        std::printf("\n%s\n", joined(lines, "\n").c_str());
        std::fflush(stdout);
    }
}

std::string Results::json() const {
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    std::vector<std::string> gpus;
    for (const std::string &gpu : facts_.gpus) {
        gpus.push_back(json_string(gpu));
    }
    const char *transports = std::getenv("UCX_TLS");
    std::ostringstream text;
    text << "{\"program\": " << json_string(facts_.program)
         << ", \"version\": \"" PACKAGE_VERSION "\", \"date\": " << json_string(date_)
         << ",\n \"host\": {\"name\": " << json_string(host)
         << ", \"cpus\": " << sysconf(_SC_NPROCESSORS_ONLN) << ", \"gpus\": [" << joined(gpus, ", ")
         << "], \"driver\": " << text_or_null(facts_.driver) << "},\n"
         << " \"ucx\": " << text_or_null(facts_.ucx) << ", \"mpi\": " << text_or_null(facts_.mpi)
         << ", \"transports\": " << json_string(transports != nullptr ? transports : "")
         << ", \"ranks\": " << facts_.ranks << ",\n \"rows\": [\n  " << joined(rows_, ",\n  ")
         << "],\n \"errors\": [" << joined(errors_, ",\n  ") << "]}\n";
    return text.str();
}

void Results::write_json() const {
    if (json_file_.empty()) {
        return;
    }
    // Renamed when it is complete, so that a run that is cut off leaves what was there before.
    const std::string temporary = json_file_ + ".tmp";
    std::ofstream file(temporary);
    file << json();
    file.close();
    if (!file || std::rename(temporary.c_str(), json_file_.c_str()) != 0) {
        throw std::runtime_error("cannot write " + json_file_ + ": " + std::strerror(errno));
    }
}

}  // namespace gpushm::perf
