// SPDX-License-Identifier: BSD-3-Clause
// Call counts and injected failures.
#include "call.hpp"

#include "settings.hpp"
#include "simcuda.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <vector>

namespace simcuda {

thread_local bool in_host_function = false;

namespace {

std::atomic<Call *> all_calls{nullptr};

struct InjectedFailure {
    std::string function;
    std::atomic<unsigned long> calls_left{0};
    CUresult error = CUDA_SUCCESS;
};
using InjectedFailures = std::vector<std::unique_ptr<InjectedFailure>>;

// Replaced as a whole; a replaced list is kept, because another thread may still read it.
std::atomic<InjectedFailures *> injected_failures{nullptr};

// "cuMemAlloc_v2" and "cuMemAllocAsync_ptsz" -> "cuMemAlloc" and "cuMemAllocAsync"
std::string base_name(const std::string &function) {
    const std::size_t form = function.rfind("_pt");
    if (form != std::string::npos) {
        return base_name(function.substr(0, form));
    }
    const std::size_t end = function.rfind("_v");
    const bool versioned = end != std::string::npos && end + 2 < function.size() &&
                           function.find_first_not_of("0123456789", end + 2) == std::string::npos;
    return versioned ? function.substr(0, end) : function;
}

bool parse_failure(const std::string &rule, InjectedFailure *failure) {
    char function[64];
    unsigned long nth = 0;
    int error = 0;
    int end = 0;
    if (std::sscanf(rule.c_str(), "%63[^:]:%lu:%d%n", function, &nth, &error, &end) != 3 ||
        static_cast<std::size_t>(end) != rule.size() || nth == 0) {
        return false;
    }
    failure->function = base_name(function);
    failure->calls_left = nth;
    failure->error = static_cast<CUresult>(error);
    return true;
}

__attribute__((destructor)) void at_exit() {
    write_counts();
}

}  // namespace

CUresult Call::enter() {
    Settings::get();
    if (!listed_.load(std::memory_order_relaxed) &&
        !listed_.exchange(true, std::memory_order_relaxed)) {
        next_ = all_calls.load(std::memory_order_relaxed);
        while (!all_calls.compare_exchange_weak(next_, this, std::memory_order_release,
                                                std::memory_order_relaxed)) {
        }
    }
    count_.fetch_add(1, std::memory_order_relaxed);
    InjectedFailures *failures = injected_failures.load(std::memory_order_acquire);
    if (failures != nullptr) {
        for (auto &failure : *failures) {
            if (failure->function == function_ &&
                failure->calls_left.load(std::memory_order_relaxed) > 0 &&
                failure->calls_left.fetch_sub(1, std::memory_order_relaxed) == 1) {
                return failure->error;
            }
        }
    }
    return CUDA_SUCCESS;
}

CUresult Call::ready() {
    return in_host_function ? CUDA_ERROR_NOT_PERMITTED : driver_state();
}

bool set_injected_failures(const std::string &rules) {
    auto failures = std::make_unique<InjectedFailures>();
    std::istringstream input(rules);
    for (std::string rule; std::getline(input, rule, ',');) {
        auto failure = std::make_unique<InjectedFailure>();
        if (!parse_failure(rule, failure.get())) {
            return false;
        }
        failures->push_back(std::move(failure));
    }
    static std::vector<std::unique_ptr<InjectedFailures>> &kept =
        *new std::vector<std::unique_ptr<InjectedFailures>>;
    Lock lock(driver_mutex());
    injected_failures.store(failures.get(), std::memory_order_release);
    kept.push_back(std::move(failures));
    return true;
}

unsigned long call_count(const std::string &function) {
    const std::string name = base_name(function);
    unsigned long count = 0;
    for (Call *call = all_calls.load(std::memory_order_acquire); call != nullptr;
         call = call->next_) {
        if (name.empty() || name == call->function_) {
            count += call->count_.load(std::memory_order_relaxed);
        }
    }
    return count;
}

void reset_counts() {
    for (Call *call = all_calls.load(std::memory_order_acquire); call != nullptr;
         call = call->next_) {
        call->count_.store(0, std::memory_order_relaxed);
    }
}

void write_counts() {
    const std::string path = with_process_id(Settings::get().counts_file);
    if (path.empty() || all_calls.load(std::memory_order_acquire) == nullptr) {
        return;
    }
    std::FILE *file =
        nullptr;  // opened by the first count, so a fork that made no call leaves none
    for (Call *call = all_calls.load(std::memory_order_acquire); call != nullptr;
         call = call->next_) {
        const unsigned long count = call->count_.load(std::memory_order_relaxed);
        if (count == 0) {
            continue;
        }
        if (file == nullptr && (file = std::fopen(path.c_str(), "w")) == nullptr) {
            std::fprintf(stderr, "simcuda: cannot write SIMCUDA_COUNTS to %s: %m\n", path.c_str());
            return;
        }
        std::fprintf(file, "%s %lu\n", call->function_, count);
    }
    if (file != nullptr) {
        std::fclose(file);
    }
}

}  // namespace simcuda

extern "C" unsigned long simcuda_call_count(const char *function) {
    return simcuda::call_count(function);
}

extern "C" void simcuda_reset_counts(void) {
    simcuda::reset_counts();
}
