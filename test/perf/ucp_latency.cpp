// SPDX-License-Identifier: BSD-3-Clause
// Measures messages between two processes through UCP's public calls, whichever libucp the loader
// finds: memory of any kind on any side, managed pages put to a place before each message, new
// buffers for each message. See README in this folder.
#include "driver.hpp"
#include "figures.hpp"
#include "message_buffers.hpp"
#include "message_tests.hpp"
#include "options.hpp"
#include "side_pair.hpp"
#include "ucp_connection.hpp"
#include "ucp_library.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>

namespace gpushm::perf {
namespace {

constexpr int kSkipped = 77;

struct Plan {
    MemoryType from, to;
    std::vector<int> devices, cpus;
    std::vector<size_t> sizes;
    std::vector<std::string> tests;
    Effort effort;
    double warm_up_seconds;
    std::string labels;

    bool needs_driver() const {
        return from.kind != MemoryKind::host || to.kind != MemoryKind::host;
    }
    bool has(const char *test) const {
        return std::find(tests.begin(), tests.end(), test) != tests.end();
    }
};

Plan plan_of(const Options &options) {
    Plan plan;
    plan.from = parse_memory_type(options.text("from"));
    plan.to = parse_memory_type(options.text("to"));
    plan.devices = options.integers("devices");
    plan.cpus = options.integers("cpus");
    plan.sizes = options.sizes("sizes");
    plan.tests = options.list("tests");
    plan.effort.seconds = options.number("seconds");
    plan.warm_up_seconds = options.number("warm-up");
    plan.labels = "\"from\": " + json_string(options.text("from")) +
                  ", \"to\": " + json_string(options.text("to")) + ", ";
    if (plan.devices.size() != 2 || (!plan.cpus.empty() && plan.cpus.size() != 2)) {
        throw std::runtime_error("--devices=A,B and --cpus=A,B: one for each side");
    }
    return plan;
}

void measure(const Plan &plan, Side &side, const UcpConnection &connection, const Driver *driver) {
    MessageBuffers source(driver, plan.from, pool_bytes(plan.sizes));
    MessageBuffers destination(driver, plan.to, pool_bytes(plan.sizes));
    MessageTests tests(side, connection, source, destination);
    const auto print = [&](size_t size, const char *test, const Figures &figures,
                           const std::string &more) {
        if (side.number() == 0) {
            print_cell(plan.labels, size, test, figures, more);
        }
    };
    tests.warm_up(*std::max_element(plan.sizes.begin(), plan.sizes.end()), plan.warm_up_seconds);
    for (const size_t size : plan.sizes) {
        if (plan.has("latency")) {
            print(size, "latency", tests.latency(size, plan.effort), "");
        }
        if (plan.has("window")) {
            print(size, "window", tests.window(size, plan.effort),
                  ", \"window\": " + std::to_string(window_of(size)));
        }
    }
}

int run_side(const Plan &plan, int number, int page) {
    bind_to_cpu(plan.cpus.empty() ? -1 : plan.cpus[static_cast<size_t>(number)]);
    std::unique_ptr<Driver> driver;
    if (plan.needs_driver()) {
        std::string reason;
        driver = Driver::open(&reason);
        if (!driver) {
            std::fprintf(stderr, "ucp_latency: %s\n", reason.c_str());
            return kSkipped;
        }
        driver->use_device(plan.devices[static_cast<size_t>(number)]);
    }
    const UcpLibrary ucp;
    if (number == 0) {
        print_facts(driver ? driver->description() : "", driver && driver->simulated(),
                    driver ? driver->device_count() : 0,
                    ", \"ucx\": " + json_string(ucp.ucp_get_version_string()));
    }
    Side side(number, page);
    const UcpConnection connection(ucp, side);
    try {
        measure(plan, side, connection, driver.get());
    } catch (const std::exception &error) {
        // Not to the end of the connection, for which the other side does not come.
        print_error(error.what());
        _exit(1);
    }
    return 0;
}

int run(int argc, char **argv) {
    const Options options(argc, argv,
                          {{"from", "host"},
                           {"to", "host"},
                           {"devices", "0,0"},
                           {"sizes", "8,1k,8k,64k,512k,4m,64m"},
                           {"tests", "latency,window"},
                           {"seconds", "0.05"},
                           {"warm-up", "0.3"},
                           {"cpus", ""},
                           {"limit", "120"},
                           {"role", ""},
                           {"page", ""}});
    const Plan plan = plan_of(options);
    if (options.is_given("role")) {
        return run_side(plan, static_cast<int>(options.number("role")),
                        static_cast<int>(options.number("page")));
    }
    const int status = run_sides(argc, argv, options.number("limit"));
    if (status == 124) {
        print_error("not ready after " + options.text("limit") + " s");
    }
    return status;
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
