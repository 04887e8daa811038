// SPDX-License-Identifier: BSD-3-Clause
// gpushm-perf: how fast messages are between two processes of this node, through UCP's public
// calls.
#include "perf_program.hpp"
#include "ucp_ranks.hpp"

#include "config.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <optional>

namespace gpushm::perf {
namespace {

constexpr const char *kProgram = "gpushm-perf";

Options options_of(int argc, char **argv) {
    std::map<std::string, std::string> defaults = Plan::defaults();
    // The last two are for the processes that the program starts.
    defaults.insert({{"cpus", ""}, {"limit", "3600"}, {"role", ""}, {"page", ""}});
    return Options(argc, argv, defaults);
}

/** One of the two processes. */
int measure(const Options &options, Plan plan) {
    const int number = static_cast<int>(options.number("role"));
    const std::vector<int> cpus = options.integers("cpus");
    Side side(number, static_cast<int>(options.number("page")));
    std::string note;
    std::optional<Gpus> gpus;
    std::optional<UcpLibrary> ucp;
    std::unique_ptr<Results> results;
    std::string error = error_of([&] {
        bind_to_cpu(cpus.empty() ? -1 : cpus[static_cast<size_t>(number)]);
        gpus.emplace(&plan, number, &note);
        ucp.emplace();
        if (number == 0) {
            RunFacts facts = facts_of(kProgram, "UCP", *gpus);
            facts.ucx = ucp->ucp_get_version_string();
            results = std::make_unique<Results>(facts, plan.json_file, plan.row_count());
        }
    });
    const std::string others = side.exchange(error, [] {});
    error = error.empty() ? others : error;
    if (number == 0 && !(error.empty() && note.empty())) {
        say(kProgram, error.empty() ? note : error);
    }
    if (!error.empty()) {
        side.barrier([] {});  // the end of one side ends the other
        return kFailed;
    }
    const UcpConnection connection(*ucp, side);
    UcpRanks ranks(side, connection);
    try {
        return measure_all({plan, ranks, &ranks, gpus->driver.get(), gpus->device,
                            gpus->first_device, results.get(), nullptr});
    } catch (const ToldEverywhere &) {
        return kFailed;
    } catch (const std::exception &error) {
        // Not to the end of the connection, for which the other side does not come.
        say(kProgram, error.what());
        _exit(kFailed);
    }
}

/** Ctrl-C reaches the two processes as well; this one stays to say so. */
void stay(int) {}

int start(const Options &options, const Plan &plan, int argc, char **argv) {
    struct sigaction action = {};
    action.sa_handler = stay;
    sigaction(SIGINT, &action, nullptr);
    const double limit = options.number("limit");
    const int status = run_sides(argc, argv, limit);
    const std::string reason = reason_of(status, limit);
    if (!reason.empty()) {
        say(kProgram,
            reason +
                (plan.json_file.empty() ? "" : "; " + plan.json_file + " has what was measured"));
    }
    return status;
}

/** Throws std::runtime_error when an option is wrong. */
Plan plan_of(const Options &options) {
    if (options.integers("cpus").size() == 1) {
        throw std::runtime_error("--cpus=A,B: one for each process");
    }
    if (!(options.number("limit") > 0)) {
        throw std::runtime_error("--limit=" + options.text("limit") + ": that is no valid value");
    }
    return Plan(options, false);
}

int run(int argc, char **argv) {
    std::optional<Options> options;
    std::optional<Plan> plan;
    const std::string wrong = error_of([&] {
        options.emplace(options_of(argc, argv));
        plan.emplace(plan_of(*options));
    });
    if (options && options->help()) {
        std::fputs(options->usage(kProgram, "man gpushm-perf").c_str(), stdout);
        return 0;
    }
    if (!wrong.empty()) {
        say(kProgram, wrong);
        return kWrongOptions;
    }
    try {
        return options->is_given("role") ? measure(*options, *plan)
                                         : start(*options, *plan, argc, argv);
    } catch (const std::exception &error) {
        say(kProgram, error.what());
        return kFailed;
    }
}

}  // namespace
}  // namespace gpushm::perf

int main(int argc, char **argv) {
    if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
        std::puts("gpushm-perf (gpushm) " PACKAGE_VERSION);
        return 0;
    }
    return gpushm::perf::run(argc, argv);
}
