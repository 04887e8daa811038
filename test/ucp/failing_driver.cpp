// SPDX-License-Identifier: BSD-3-Clause
// A libcuda.so.1 that passes every call on to another one, and has the controls of the simulated
// driver for it: calls are counted, and call n of a function can be made to fail (simcuda.h). So
// tests of failures run with the real driver too:
//
//   FAILING_DRIVER_OF=DIR/libcuda.so.1 LD_LIBRARY_PATH=test/ucp/failing/.libs PROGRAM
//
// It has the functions that gpushm and the tests look up (failing_driver_functions.cpp, made
// from their sources), no others. SIMCUDA_FAIL and SIMCUDA_COUNTS are understood.
#include "../simcuda/simcuda.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

/** One function. The assembler code below knows the layout. */
struct Function {
    const char *name;
    void *target;  // in the other driver
    std::atomic<unsigned long> calls;
};
static_assert(offsetof(Function, target) == 8 && sizeof(Function) == 24, "see the assembler code");

struct Failure {
    std::string function;
    unsigned long calls_left;
    int error;
};

constexpr int kErrorNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED

std::mutex failures_mutex;
std::atomic<bool> may_fail{false};

std::vector<Failure> &failures() {
    static auto &list = *new std::vector<Failure>;  // used until the process ends
    return list;
}

/** "cuMemAlloc_v2" -> "cuMemAlloc" */
std::string base_name(const std::string &function) {
    const size_t end = function.rfind("_v");
    return end != std::string::npos && end + 2 < function.size() &&
                   function.find_first_not_of("0123456789", end + 2) == std::string::npos
               ? function.substr(0, end)
               : function;
}

bool set_failures(const char *rules) {
    std::vector<Failure> wanted;
    std::istringstream input(rules);
    for (std::string rule; std::getline(input, rule, ',');) {
        char function[64];
        Failure failure = {"", 0, 0};
        if (sscanf(rule.c_str(), "%63[^:]:%lu:%d", function, &failure.calls_left, &failure.error) !=
            3) {
            return false;
        }
        failure.function = base_name(function);
        wanted.push_back(failure);
    }
    const std::lock_guard<std::mutex> lock(failures_mutex);
    failures() = wanted;
    may_fail = !wanted.empty();
    return true;
}

void *other_driver() {
    static void *const library = [] {
        const char *path = getenv("FAILING_DRIVER_OF");
        void *opened = path != nullptr ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
        if (opened == nullptr) {
            fprintf(stderr, "failing_driver: FAILING_DRIVER_OF must name a libcuda.so.1\n");
        }
        if (const char *rules = getenv("SIMCUDA_FAIL")) {
            set_failures(rules);
        }
        return opened;
    }();
    return library;
}

}  // namespace

/** Called before each function: 0 to go on to its target, or the error that it returns. */
extern "C" __attribute__((visibility("hidden"))) int failing_driver_enter(Function *function) {
    void *const library = other_driver();
    if (function->target == nullptr && library != nullptr) {
        function->target = dlsym(library, function->name);  // two threads find the same
    }
    function->calls.fetch_add(1, std::memory_order_relaxed);
    if (may_fail.load(std::memory_order_relaxed)) {
        const std::lock_guard<std::mutex> lock(failures_mutex);
        for (Failure &failure : failures()) {
            if (failure.calls_left != 0 && failure.function == base_name(function->name) &&
                --failure.calls_left == 0) {
                return failure.error;
            }
        }
    }
    return function->target != nullptr ? 0 : kErrorNotSupported;
}

extern "C" Function __start_failing_driver_list[] __attribute__((weak, visibility("hidden")));
extern "C" Function __stop_failing_driver_list[] __attribute__((weak, visibility("hidden")));

EXPORTED unsigned long simcuda_call_count(const char *wanted) {
    unsigned long count = 0;
    const std::string name = base_name(wanted);
    for (Function *one = __start_failing_driver_list; one != __stop_failing_driver_list; ++one) {
        if (name.empty() || base_name(one->name) == name) {
            count += one->calls;
        }
    }
    return count;
}

EXPORTED void simcuda_reset_counts() {
    for (Function *one = __start_failing_driver_list; one != __stop_failing_driver_list; ++one) {
        one->calls = 0;
    }
}

EXPORTED int simcuda_set(const char *variable, const char *value) {
    return strcmp(variable, "SIMCUDA_FAIL") == 0 && set_failures(value) ? 0 : -1;
}

namespace {

__attribute__((destructor)) void write_counts() {
    const char *variable = getenv("SIMCUDA_COUNTS");
    if (variable == nullptr) {
        return;
    }
    std::string path = variable;
    const size_t at = path.find("%p");
    if (at != std::string::npos) {
        path.replace(at, 2, std::to_string(getpid()));
    }
    std::FILE *file = fopen(path.c_str(), "w");
    if (file == nullptr) {
        return;
    }
    for (Function *one = __start_failing_driver_list; one != __stop_failing_driver_list; ++one) {
        if (one->calls != 0) {
            fprintf(file, "%s %lu\n", one->name, one->calls.load());
        }
    }
    fclose(file);
}

}  // namespace
