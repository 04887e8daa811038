// SPDX-License-Identifier: BSD-3-Clause
// Measures the single operations of which messages between GPUs are made, with nothing around them:
// what a message must cost at least. See README in this folder.
#include "driver.hpp"
#include "figures.hpp"
#include "ipc_exporter.hpp"
#include "options.hpp"
#include "raw_operations.hpp"
#include "standby_copy.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>

namespace gpushm::perf {
namespace {

constexpr int kSkipped = 77;

bool wants(const Options &options, const char *test) {
    const std::vector<std::string> tests = options.list("tests");
    return std::find(tests.begin(), tests.end(), test) != tests.end();
}

/** The best of all variants of `once`. */
Figures best(RawOperation &operation, size_t size, const Effort &effort, double divisor,
             const std::function<void()> &once) {
    Figures figures;
    const unsigned variants = operation.variants(size);
    for (unsigned i = 0; i < variants; ++i) {
        operation.choose_variant(i);
        const Figures found = repeat({effort.seconds / variants}, divisor, once);
        if (i == 0 || found.median < figures.median) {
            figures = found;
        }
    }
    return figures;
}

void measure_single(RawOperation &operation, const std::string &labels, size_t size,
                    const Effort &effort) {
    operation.clear(size);
    const Figures figures = best(operation, size, effort, 1, [&] { operation.single(size); });
    operation.check(size, 1);
    print_cell(labels, size, "latency", figures);
}

void measure_window(RawOperation &operation, const std::string &labels, size_t size,
                    const Effort &effort) {
    const unsigned window = window_of(size);
    operation.clear(size);
    Figures figures = best(operation, size, effort, window, [&] { operation.window(size); });
    operation.check(size, slots_of(size));
    const Figures one_by_one = figures;
    std::string way = "loop";
    if (operation.batch(size)) {
        operation.clear(size);
        const Figures batch = repeat(effort, window, [&] { operation.batch(size); });
        operation.check(size, slots_of(size));
        if (batch.median < figures.median) {
            figures = batch;
            way = "batch";
        }
    }
    print_cell(labels, size, "window", figures,
               ", \"window\": " + std::to_string(window) + ", \"way\": \"" + way +
                   "\", \"loop_us\": " + std::to_string(one_by_one.median));
}

/** "standby" stands for all of the standby kernel's. */
std::vector<std::string> operations_of(const Options &options) {
    std::vector<std::string> operations;
    for (const std::string &name : options.list("operations")) {
        const std::vector<std::string> names =
            name == "standby" ? standby_operations() : std::vector<std::string>{name};
        operations.insert(operations.end(), names.begin(), names.end());
    }
    return operations;
}

void measure(const Driver *driver, const Options &options) {
    const std::vector<int> devices = options.integers("devices");
    const std::vector<int> cpus = options.integers("cpus");
    const std::vector<size_t> sizes = options.sizes("sizes");
    const Effort effort{options.number("seconds")};
    if (devices.size() != 2) {
        throw std::runtime_error("--devices=A,B: two of them, or one twice");
    }
    for (const std::string &name : operations_of(options)) {
        const RawSettings settings = {driver, devices[0], devices[1],
                                      cpus.size() > 1 ? cpus[1] : -1, pool_bytes(sizes)};
        const std::unique_ptr<RawOperation> operation = make_raw_operation(name, settings);
        const std::string labels = "\"operation\": " + json_string(name) + ", ";
        for (const size_t size : sizes) {
            if (!operation->takes(size)) {
                continue;
            }
            if (wants(options, "latency")) {
                measure_single(*operation, labels, size, effort);
            }
            if (wants(options, "window")) {
                measure_window(*operation, labels, size, effort);
            }
        }
    }
}

bool needs_driver(const Options &options) {
    return options.text("role") == "exporter" || options.text("operations") != "memcpy";
}

int run(int argc, char **argv) {
    const Options options(argc, argv,
                          {{"operations", "memcpy,d2h,h2d,peer,staged"},
                           {"devices", "0,0"},
                           {"sizes", "8,1k,8k,64k,512k,4m,64m"},
                           {"tests", "latency,window"},
                           {"seconds", "0.05"},
                           {"cpus", ""},
                           {"role", ""},
                           {"bytes", "0"},
                           {"seed", "0"}});
    if (options.help()) {
        std::fputs(options.usage("raw_copies").c_str(), stdout);
        return 0;
    }
    const std::vector<int> cpus = options.integers("cpus");
    bind_to_cpu(cpus.empty() ? -1 : cpus[0]);
    std::string reason;
    std::unique_ptr<Driver> driver;
    if (needs_driver(options) && !(driver = Driver::open(&reason))) {
        std::fprintf(stderr, "raw_copies: %s\n", reason.c_str());
        return kSkipped;
    }
    if (options.text("role") == "exporter") {
        run_exporter(*driver, options.integers("devices")[0], options.sizes("bytes")[0],
                     std::stoull(options.text("seed")));
        return 0;
    }
    print_facts(driver ? driver->description() : "", driver && driver->simulated(),
                driver ? driver->device_count() : 0);
    measure(driver.get(), options);
    return 0;
}

}  // namespace
}  // namespace gpushm::perf

int main(int argc, char **argv) {
    try {
        return gpushm::perf::run(argc, argv);
    } catch (const std::exception &error) {
        gpushm::perf::print_error(error.what());
        return 1;
    }
}
