// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <sched.h>

#include <cctype>
#include <cstdint>
#include <sstream>
#include <stdexcept>

namespace gpushm::perf {
namespace {

[[noreturn]] void reject(const std::string &key, const std::string &value) {
    throw std::runtime_error("--" + key + "=" + value + ": that is no valid value");
}

template <typename Number>
Number parse(const std::string &key, const std::string &text) {
    std::istringstream stream(text);
    Number number;
    char rest;
    if (!(stream >> number) || stream >> rest) {
        reject(key, text);
    }
    return number;
}

size_t parse_size(const std::string &key, const std::string &text) {
    const std::string units = "kmg";
    const size_t unit =
        text.empty()
            ? std::string::npos
            : units.find(static_cast<char>(std::tolower(static_cast<unsigned char>(text.back()))));
    if (unit == std::string::npos) {
        return parse<size_t>(key, text);
    }
    return parse<size_t>(key, text.substr(0, text.size() - 1)) << (10 * (unit + 1));
}

}  // namespace

Options::Options(int argc, char **argv, std::map<std::string, std::string> defaults)
    : values_(std::move(defaults)) {
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument == "--help" || argument == "-h") {
            help_ = true;
            return;
        }
        const size_t equals = argument.find('=');
        const std::string key = argument.substr(2 < argument.size() ? 2 : 0, equals - 2);
        if (argument.compare(0, 2, "--") != 0 || equals == std::string::npos ||
            values_.count(key) == 0) {
            throw std::runtime_error(argument + ": no such option; see --help");
        }
        values_[key] = argument.substr(equals + 1);
    }
}

std::string Options::usage(const std::string &program, const std::string &manual) const {
    std::string text =
        "usage: " + program + " [--KEY=VALUE]...; " + manual + " says what the keys mean:\n";
    for (const auto &[key, value] : values_) {
        if (key == "role" || key == "page") {
            continue;  // of run_sides, for the processes that it starts
        }
        text += "  --" + key + "=" + value + "\n";
    }
    return text;
}

double Options::number(const std::string &key) const {
    return parse<double>(key, text(key));
}

std::vector<std::string> Options::list(const std::string &key) const {
    std::vector<std::string> items;
    std::istringstream stream(text(key));
    for (std::string item; std::getline(stream, item, ',');) {
        items.push_back(item);
    }
    return items;
}

std::vector<int> Options::integers(const std::string &key) const {
    std::vector<int> numbers;
    for (const std::string &item : list(key)) {
        numbers.push_back(parse<int>(key, item));
    }
    return numbers;
}

std::vector<size_t> Options::sizes(const std::string &key) const {
    std::vector<size_t> sizes;
    for (const std::string &item : list(key)) {
        const size_t colon = item.find(':');
        const size_t first = parse_size(key, item.substr(0, colon));
        const size_t last =
            colon == std::string::npos ? first : parse_size(key, item.substr(colon + 1));
        if (first == 0 || last < first || last > SIZE_MAX / 2) {
            reject(key, item);
        }
        for (size_t size = first; size <= last; size *= 2) {
            sizes.push_back(size);
        }
    }
    if (sizes.empty()) {
        reject(key, text(key));
    }
    return sizes;
}

void bind_to_cpu(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu < 0) {
        return;
    }
    CPU_SET(static_cast<size_t>(cpu), &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        throw std::runtime_error("cannot bind to CPU " + std::to_string(cpu));
    }
}

}  // namespace gpushm::perf
