// SPDX-License-Identifier: BSD-3-Clause
// Measures what calls of an application to the CUDA driver take because its process communicates,
// through UCP's public calls. See README in this folder.
#include "app_calls.hpp"
#include "call_tests.hpp"
#include "figures.hpp"
#include "options.hpp"
#include "ucp_program.hpp"

#include <algorithm>
#include <map>

namespace gpushm::perf {
namespace {

constexpr unsigned kSmallRoundTrips = 8;
constexpr unsigned kLargeRoundTrips = 2;

struct Plan {
    explicit Plan(const Options &options)
        : calls(options.list("calls")),
          when(options.list("when")),
          small(options.sizes("small")[0]),
          large(options.sizes("large")[0]),
          effort{options.number("seconds")} {}

    bool wants(const AppCall &call) const {
        return calls.empty() || std::find(calls.begin(), calls.end(), call.name) != calls.end();
    }

    std::vector<std::string> calls, when;
    size_t small, large;
    Effort effort;
};

/** Keeps the figures without messages, to which the others are compared. */
class Printer {
public:
    explicit Printer(int side) : side_(side) {}

    void call(const std::string &when, const AppCall &call, size_t size, const Figures &figures) {
        if (side_ != 0) {
            return;
        }
        std::string more;
        if (when == "idle") {
            idle_[call.name] = figures;
        } else if (idle_.count(call.name) != 0) {
            const Figures &idle = idle_[call.name];
            more = ", \"over_idle\": " + std::to_string(figures.median - idle.median) +
                   ", \"p99_over_idle\": " + std::to_string(figures.p99 - idle.p99);
        }
        print_cell(labels(when, call), size, "call", figures, more);
    }

    /** Of the side that sees the whole of it. */
    void round_trip(const std::string &when, const AppCall &call, size_t size,
                    const Figures &figures) const {
        if (side_ == 1) {
            print_cell(labels(when, call), size, "round-trip", figures);
        }
    }

private:
    static std::string labels(const std::string &when, const AppCall &call) {
        return "\"call\": " + json_string(call.name) + ", \"when\": " + json_string(when) + ", ";
    }

    int side_;
    std::map<std::string, Figures> idle_;
};

void measure_call(const Plan &plan, const std::string &when, const AppCall &call, CallTests &tests,
                  Printer &printer) {
    if (when == "idle") {
        printer.call(when, call, 0, tests.idle(call, plan.effort));
    } else if (when == "large") {
        printer.call(when, call, plan.large,
                     tests.after(call, plan.large, kLargeRoundTrips, plan.effort));
    } else if (when == "small") {
        printer.call(when, call, plan.small,
                     tests.after(call, plan.small, kSmallRoundTrips, plan.effort));
    } else {
        Figures round_trip;
        printer.call(when, call, plan.small,
                     tests.beside(call, plan.small, plan.effort, &round_trip));
        printer.round_trip(when, call, plan.small, round_trip);
    }
}

void measure(const Options &options, const MeasuringSide &here) {
    const Plan plan(options);
    const AppCalls calls(*here.driver);
    CallTests tests(here, std::max(plan.small, plan.large));
    Printer printer(here.side.number());
    if (here.side.number() == 0 && !calls.note().empty()) {
        print_note(calls.note());
    }
    // Large before small, so that the process has sent no small ones before.
    for (const char *when : {"idle", "large", "small", "beside"}) {
        if (std::find(plan.when.begin(), plan.when.end(), when) == plan.when.end()) {
            continue;
        }
        for (const AppCall &call : calls.all()) {
            if (plan.wants(call)) {
                measure_call(plan, when, call, tests, printer);
            }
        }
    }
}

}  // namespace
}  // namespace gpushm::perf

int main(int argc, char **argv) {
    using namespace gpushm::perf;
    return run_ucp_program({"ucp_beside",
                            {{"calls", ""},
                             {"when", "idle,large,small,beside"},
                             {"small", "8k"},
                             {"large", "4m"},
                             {"seconds", "0.1"}},
                            [](const Options &options) {
                                static_cast<void>(Plan(options));
                                return true;
                            },
                            measure},
                           argc, argv);
}
