// SPDX-License-Identifier: BSD-3-Clause
// Measures messages between two processes through UCP's public calls, whichever libucp the loader
// finds: memory of any kind on any side, managed pages put to a place before each message, new
// buffers for each message. See README in this folder.
#include "figures.hpp"
#include "message_buffers.hpp"
#include "message_tests.hpp"
#include "options.hpp"
#include "ucp_program.hpp"

#include <algorithm>

namespace gpushm::perf {
namespace {

struct Plan {
    explicit Plan(const Options &options)
        : from(parse_memory_type(options.text("from"))),
          to(parse_memory_type(options.text("to"))),
          sizes(options.sizes("sizes")),
          tests(options.list("tests")),
          effort{options.number("seconds")},
          one_device(options.integers("devices").at(0) == options.integers("devices").at(1)),
          warm_up_seconds(options.number("warm-up")),
          labels("\"from\": " + json_string(options.text("from")) +
                 ", \"to\": " + json_string(options.text("to")) + ", ") {}

    bool needs_driver() const {
        return from.kind != MemoryKind::host || to.kind != MemoryKind::host;
    }
    bool one_way() const { return one_device && takes_turns_on_one_gpu(from.kind, to.kind); }
    bool has(const char *test) const {
        return std::find(tests.begin(), tests.end(), test) != tests.end();
    }

    MemoryType from, to;
    std::vector<size_t> sizes;
    std::vector<std::string> tests;
    Effort effort;
    bool one_device;
    double warm_up_seconds;
    std::string labels;
};

void measure(const Options &options, const MeasuringSide &here) {
    const Plan plan(options);
    MessageBuffers source(here.driver, plan.from, pool_bytes(plan.sizes));
    MessageBuffers destination(here.driver, plan.to, pool_bytes(plan.sizes));
    MessageTests tests(here, source, destination, plan.one_way());
    const auto print = [&](size_t size, const char *test, const Figures &figures,
                           const std::string &more) {
        if (here.side.number() == 0) {
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

}  // namespace
}  // namespace gpushm::perf

int main(int argc, char **argv) {
    using namespace gpushm::perf;
    return run_ucp_program({"ucp_latency",
                            {{"from", "host"},
                             {"to", "host"},
                             {"sizes", "8,1k,8k,64k,512k,4m,64m"},
                             {"tests", "latency,window"},
                             {"warm-up", "0.3"}},
                            [](const Options &options) { return Plan(options).needs_driver(); },
                            measure},
                           argc, argv);
}
