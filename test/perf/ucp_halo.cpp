// SPDX-License-Identifier: BSD-3-Clause
// Measures the steps of an application: a kernel, a wait for it, and a few messages of GPU memory to
// and from a neighbour, through UCP's public calls. See README in this folder.
#include "figures.hpp"
#include "halo_steps.hpp"
#include "options.hpp"
#include "ucp_program.hpp"

#include <algorithm>
#include <stdexcept>

namespace gpushm::perf {
namespace {

struct Plan {
    explicit Plan(const Options &options)
        : kernels_us(options.integers("kernel-us")),
          messages(options.integers("messages")),
          size(options.sizes("size")[0]),
          type(parse_memory_type(options.text("kind"))),
          effort{options.number("seconds")},
          warm_up{options.number("warm-up")},
          blocks(static_cast<unsigned>(options.number("blocks-per-sm"))),
          threads(static_cast<unsigned>(options.number("threads"))) {
        for (const std::string &name : options.list("sync")) {
            synchronizations.push_back({name, parse_synchronization(name)});
        }
    }

    HaloStep step(Synchronization how, int kernel_us, int count) const {
        return {how, static_cast<double>(kernel_us), blocks, threads, static_cast<unsigned>(count)};
    }
    int most_messages() const { return *std::max_element(messages.begin(), messages.end()); }

    std::vector<int> kernels_us, messages;
    std::vector<std::pair<std::string, Synchronization>> synchronizations;
    size_t size;
    MemoryType type;
    Effort effort, warm_up;
    unsigned blocks, threads;
};

void measure(const Options &options, const MeasuringSide &here) {
    const Plan plan(options);
    HaloSteps steps(here, plan.type, plan.size, static_cast<unsigned>(plan.most_messages()));
    const bool prints = here.side.number() == 0;
    if (prints && !steps.note().empty()) {
        print_note(steps.note());
    }
    steps.measure(plan.step(Synchronization::stream, plan.kernels_us[0], plan.most_messages()),
                  plan.warm_up);
    for (const int kernel_us : plan.kernels_us) {
        for (const auto &[name, how] : plan.synchronizations) {
            const Figures alone = steps.measure(plan.step(how, kernel_us, 0), plan.effort);
            for (const int count : plan.messages) {
                const Figures figures =
                    steps.measure(plan.step(how, kernel_us, count), plan.effort);
                if (prints) {
                    print_cell("\"kernel_us\": " + std::to_string(kernel_us) + ", \"sync\": \"" +
                                   name + "\", \"messages\": " + std::to_string(count) + ", ",
                               plan.size, "halo", figures,
                               ", \"alone_us\": " + std::to_string(alone.median));
                }
            }
        }
    }
}

}  // namespace
}  // namespace gpushm::perf

int main(int argc, char **argv) {
    using namespace gpushm::perf;
    return run_ucp_program({"ucp_halo",
                            {{"kernel-us", "20,100,500"},
                             {"sync", "stream,context,query"},
                             {"messages", "8,1"},
                             {"size", "8k"},
                             {"kind", "device"},
                             {"seconds", "0.1"},
                             {"warm-up", "0.3"},
                             {"blocks-per-sm", "1"},
                             {"threads", "256"}},
                            [](const Options &options) {
                                const Plan plan(options);
                                if (plan.kernels_us.empty() || plan.messages.empty()) {
                                    throw std::runtime_error("--kernel-us and --messages: one of "
                                                             "each at least");
                                }
                                return true;
                            },
                            measure},
                           argc, argv);
}
