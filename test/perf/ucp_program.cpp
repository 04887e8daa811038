// SPDX-License-Identifier: BSD-3-Clause
#include "ucp_program.hpp"

#include "ucp_library.hpp"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <stdexcept>

namespace gpushm::perf {
namespace {

constexpr int kSkipped = 77;

Options options_of(const UcpProgram &program, int argc, char **argv) {
    std::map<std::string, std::string> defaults = {{"devices", "0,0"},  {"cpus", ""},
                                                   {"seconds", "0.05"}, {"limit", "120"},
                                                   {"role", ""},        {"page", ""}};
    for (const auto &[key, value] : program.options) {
        defaults[key] = value;
    }
    return Options(argc, argv, defaults);
}

int run_side(const UcpProgram &program, const Options &options, bool needs_driver) {
    const int number = static_cast<int>(options.number("role"));
    const auto index = static_cast<size_t>(number);
    const std::vector<int> cpus = options.integers("cpus");
    const int device = options.integers("devices")[index];
    bind_to_cpu(cpus.empty() ? -1 : cpus[index]);
    std::unique_ptr<Driver> driver;
    if (needs_driver) {
        std::string reason;
        driver = Driver::open(&reason);
        if (!driver) {
            std::fprintf(stderr, "%s: %s\n", program.name, reason.c_str());
            return kSkipped;
        }
        driver->use_device(device);
    }
    const UcpLibrary ucp;
    if (number == 0) {
        print_facts(driver ? driver->description() : "", driver && driver->simulated(),
                    driver ? driver->device_count() : 0,
                    ", \"ucx\": " + json_string(ucp.ucp_get_version_string()));
    }
    Side side(number, static_cast<int>(options.number("page")));
    const UcpConnection connection(ucp, side);
    try {
        program.measure(options, {side, connection, driver.get(), device, cpus});
    } catch (const std::exception &error) {
        // Not to the end of the connection, for which the other side does not come.
        print_error(error.what());
        _exit(1);
    }
    return 0;
}

int run(const UcpProgram &program, int argc, char **argv) {
    const Options options = options_of(program, argc, argv);
    if (options.help()) {
        std::fputs(options.usage(program.name).c_str(), stdout);
        return 0;
    }
    const size_t cpus = options.integers("cpus").size();
    if (options.integers("devices").size() != 2 || cpus == 1) {
        throw std::runtime_error("--devices=A,B and --cpus=A,B: one for each side");
    }
    const bool needs_driver = program.check(options);
    if (options.is_given("role")) {
        return run_side(program, options, needs_driver);
    }
    const double limit = options.number("limit");
    const int status = run_sides(argc, argv, limit);
    const std::string reason = reason_of(status, limit);
    if (!reason.empty()) {
        print_error(reason);
    }
    return status;
}

}  // namespace

int run_ucp_program(const UcpProgram &program, int argc, char **argv) {
    try {
        return run(program, argc, argv);
    } catch (const std::exception &error) {
        print_error(error.what());
        return 1;
    }
}

Figures measure_on_both_sides(const MeasuringSide &here, const Run &run, const Effort &effort,
                              double divisor) {
    const Side::Progress progress = here.connection.progress_function();
    const auto time_of = [&run](size_t count) {
        const double start = now_us();
        run(count);
        return (now_us() - start) / static_cast<double>(count);
    };
    const size_t count = agree_on_samples(
        effort, time_of, [&](size_t own) { return here.side.agree(own, progress); });
    const std::vector<double> samples = run(count);
    here.side.barrier(progress);
    return here.side.number() == 0 ? figures_of(samples, divisor) : Figures{};
}

}  // namespace gpushm::perf
