// SPDX-License-Identifier: BSD-3-Clause
#include "perf_program.hpp"

#include <cstdio>
#include <numeric>
#include <stdexcept>

namespace gpushm::perf {
namespace {

/** Those that are to be used, of `count`. */
std::vector<int> devices_of(const Plan &plan, int count) {
    std::vector<int> devices = plan.devices;
    if (devices.empty()) {
        devices.resize(static_cast<size_t>(count));
        std::iota(devices.begin(), devices.end(), 0);
    }
    for (const int device : devices) {
        if (device < 0 || device >= count) {
            throw std::runtime_error("--devices: there is no GPU " + std::to_string(device) +
                                     "; the first is 0, the last is " + std::to_string(count - 1));
        }
    }
    return devices;
}

}  // namespace

void say(const std::string &program, const std::string &text) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), text.c_str());
}

Gpus::Gpus(Plan *plan, int place, std::string *note) {
    if (!plan->needs_gpu()) {
        return;
    }
    std::string reason;
    driver = Driver::open(&reason);
    if (!driver) {
        if (!plan->leave_out_gpus()) {
            throw std::runtime_error("there is no GPU: " + reason);
        }
        *note = "there is no GPU, so only host memory is measured: " + reason;
        return;
    }
    const std::vector<int> devices = devices_of(*plan, driver->device_count());
    device = devices[static_cast<size_t>(place) % devices.size()];
    first_device = devices.front();
    driver->use_device(device);
}

RunFacts facts_of(const std::string &program, const std::string &carrier, const Gpus &gpus) {
    RunFacts facts;
    facts.program = program;
    facts.carrier = carrier;
    if (gpus.driver) {
        facts.driver = gpus.driver->description();
        facts.simulated = gpus.driver->simulated();
        for (int i = 0; i < gpus.driver->device_count(); ++i) {
            facts.gpus.push_back(gpus.driver->device_name(i));
        }
    }
    return facts;
}

}  // namespace gpushm::perf
