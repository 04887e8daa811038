// SPDX-License-Identifier: BSD-3-Clause
#include "perf_program.hpp"

#include <cstdio>
#include <stdexcept>

namespace gpushm::perf {

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
    std::vector<int> devices = plan->devices;
    for (int i = 0;
         devices.size() < static_cast<size_t>(driver->device_count()) && plan->devices.empty();
         ++i) {
        devices.push_back(i);
    }
    for (const int one : devices) {
        if (one < 0 || one >= driver->device_count()) {
            throw std::runtime_error("--devices: there is no GPU " + std::to_string(one) +
                                     "; the first is 0, the last is " +
                                     std::to_string(driver->device_count() - 1));
        }
    }
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
