// SPDX-License-Identifier: BSD-3-Clause
// Reads the SIMCUDA_* variables.
#include "settings.hpp"

#include "call.hpp"
#include "simcuda.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <unistd.h>
#include <vector>

namespace simcuda {

namespace {

bool parse(const std::string &text, double *value) {
    char *end = nullptr;
    *value = std::strtod(text.c_str(), &end);
    return !text.empty() && *end == '\0' && *value >= 0;
}

bool parse(const std::string &text, std::uint64_t *value) {
    char *end = nullptr;
    *value = std::strtoull(text.c_str(), &end, 0);
    return !text.empty() && *end == '\0';
}

}  // namespace

void PeerAccess::set_all(bool access) {
    for (auto &row : rows_) {
        row = access ? ~std::uint64_t{0} : 0;
    }
}

void PeerAccess::set(unsigned one, unsigned other, bool access) {
    const std::uint64_t bit = std::uint64_t{1} << other;
    access ? rows_[one] |= bit : rows_[one] &= ~bit;
}

bool PeerAccess::parse(const std::string &text) {
    struct Rule {
        unsigned one;
        unsigned other;
        int access;
    };
    std::vector<Rule> rules;
    std::istringstream input(text);
    for (std::string entry; std::getline(input, entry, ',');) {
        Rule rule{kMaxDevices, kMaxDevices, 0};
        int end = 0;
        const bool pair = std::sscanf(entry.c_str(), "%u-%u=%1d%n", &rule.one, &rule.other,
                                      &rule.access, &end) == 3;
        const bool known = pair ? rule.one < kMaxDevices && rule.other < kMaxDevices
                                : std::sscanf(entry.c_str(), "%1d%n", &rule.access, &end) == 1;
        if (!known || static_cast<std::size_t>(end) != entry.size() || rule.access > 1) {
            return false;
        }
        rules.push_back(pair ? rule : Rule{kMaxDevices, kMaxDevices, rule.access});
    }
    for (const Rule &rule : rules) {
        if (rule.one == kMaxDevices) {
            set_all(rule.access != 0);
        } else {
            set(rule.one, rule.other, rule.access != 0);
            set(rule.other, rule.one, rule.access != 0);
        }
    }
    return !rules.empty();
}

Settings &Settings::get() {
    static Settings &settings = *new Settings;  // lives until the last call, so never destroyed
    return settings;
}

Settings::Settings() {
    for (const char *variable :
         {"SIMCUDA_DEVICES", "SIMCUDA_NODE", "SIMCUDA_EXCLUSIVE", "SIMCUDA_MPS",
          "SIMCUDA_MEMORY_MB", "SIMCUDA_COUNTS", "SIMCUDA_TRACE", "SIMCUDA_DELAY_US",
          "SIMCUDA_BANDWIDTH_GBS", "SIMCUDA_SEED", "SIMCUDA_MAX_PINNED_BYTES",
          "SIMCUDA_PEER_ACCESS", "SIMCUDA_FAIL", "SIMCUDA_KERNEL_START_US",
          "SIMCUDA_KERNEL_TIME_SCALE", "SIMCUDA_KERNEL_DIES", "CUDA_LAUNCH_BLOCKING"}) {
        read_environment(variable);
    }
}

void Settings::read_environment(const char *variable) {
    const char *value = std::getenv(variable);
    if (value != nullptr && !set_at_start(variable, value) && !set(variable, value)) {
        std::fprintf(stderr, "simcuda: %s=%s is malformed and is ignored, see the README\n",
                     variable, value);
    }
}

bool Settings::set_at_start(const std::string &variable, const std::string &value) {
    std::uint64_t number = 0;
    if (variable == "SIMCUDA_COUNTS") {
        counts_file = value;
        return true;
    }
    if (variable == "SIMCUDA_TRACE") {
        trace_file = value;
        return true;
    }
    if (variable == "CUDA_LAUNCH_BLOCKING") {
        launch_blocking = std::atoi(value.c_str()) != 0;
        return true;
    }
    if (variable == "SIMCUDA_DEVICES" && parse(value, &number) &&
        number <= PeerAccess::kMaxDevices) {
        device_count = static_cast<unsigned>(number);
        return true;
    }
    if (variable == "SIMCUDA_NODE" && parse(value, &number)) {
        node = static_cast<unsigned>(number);
        return true;
    }
    if (variable == "SIMCUDA_EXCLUSIVE" && parse(value, &number) && number <= 1) {
        exclusive = number == 1;
        return true;
    }
    if (variable == "SIMCUDA_MPS" && parse(value, &number) && number <= 1) {
        mps = number == 1;
        return true;
    }
    if (variable == "SIMCUDA_MEMORY_MB" && parse(value, &number) && number > 0) {
        memory_bytes = number << 20;
        return true;
    }
    return false;
}

bool Settings::set(const std::string &variable, const std::string &value) {
    if (variable == "SIMCUDA_FAIL") {
        return set_injected_failures(value);
    }
    std::uint64_t number = 0;
    double real = 0;
    if (variable == "SIMCUDA_DELAY_US" && parse(value, &real)) {
        delay_us = real;
    } else if (variable == "SIMCUDA_BANDWIDTH_GBS" && parse(value, &real) && real > 0) {
        bandwidth_gbs = real;
    } else if (variable == "SIMCUDA_KERNEL_START_US" && parse(value, &real)) {
        kernel_start_us = real;
    } else if (variable == "SIMCUDA_KERNEL_TIME_SCALE" && parse(value, &real) && real > 0) {
        kernel_time_scale = real;
    } else if (variable == "SIMCUDA_KERNEL_DIES" && (value.empty() || parse(value, &number))) {
        kernel_dies = number;
    } else if (variable == "SIMCUDA_SEED" && parse(value, &number)) {
        seed = number;
    } else if (variable == "SIMCUDA_MAX_PINNED_BYTES" && parse(value, &number)) {
        max_pinned_bytes = number;
    } else {
        return variable == "SIMCUDA_PEER_ACCESS" && peer_access.parse(value);
    }
    return true;
}

std::string with_process_id(std::string path) {
    const std::size_t at = path.find("%p");
    return at == std::string::npos ? path : path.replace(at, 2, std::to_string(getpid()));
}

}  // namespace simcuda

extern "C" int simcuda_set(const char *variable, const char *value) {
    return simcuda::Settings::get().set(variable, value) ? 0 : -1;
}
