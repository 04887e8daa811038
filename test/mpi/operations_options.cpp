// SPDX-License-Identifier: BSD-3-Clause
// Options are "--name" or "--name=VALUE".
#include "operations_options.hpp"

#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace gpushm::mpi_test::operations {

const char *const kUsage =
    "usage: mpirun -n N operations [OPTIONS]\n"
    "Runs every communication operation of MPI and checks every byte.\n"
    "  --list             only print the names of the tests\n"
    "  --only=TEXT        only tests with TEXT in their name; may be given again\n"
    "  --kinds=LIST       of host,device,managed,pinned,mixed (default: all that there are)\n"
    "  --quick            fewer sizes and kinds\n"
    "  --keep-going       go on after a failure\n"
    "  --timeout=SECONDS  give up when one exchange takes longer (default: 120)\n"
    "  --verbose          a line for each test that passed\n";

namespace {

std::vector<std::string> split(const std::string &list) {
    std::vector<std::string> parts;
    std::istringstream stream(list);
    for (std::string part; std::getline(stream, part, ',');) {
        parts.push_back(part);
    }
    return parts;
}

unsigned parse_seconds(const std::string &value) {
    char *end = nullptr;
    const unsigned long seconds = std::strtoul(value.c_str(), &end, 10);
    if (value.empty() || *end != '\0' || seconds == 0) {
        throw std::runtime_error("--timeout=" + value + ": not a number of seconds");
    }
    return static_cast<unsigned>(seconds);
}

// Returns whether the option takes a value.
bool parse_with_value(Options &options, const std::string &name, const std::string &value) {
    if (name == "--only") {
        options.only.push_back(value);
    } else if (name == "--kinds") {
        options.kinds = split(value);
    } else if (name == "--timeout") {
        options.timeout_s = parse_seconds(value);
    } else {
        return false;
    }
    return true;
}

bool parse_flag(Options &options, const std::string &name) {
    if (name == "--list") {
        options.list = true;
    } else if (name == "--quick") {
        options.quick = true;
    } else if (name == "--keep-going") {
        options.keep_going = true;
    } else if (name == "--verbose") {
        options.verbose = true;
    } else if (name == "--help" || name == "-h") {
        options.help = true;
    } else {
        return false;
    }
    return true;
}

}  // namespace

Options parse_options(int argc, char **argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        const size_t equals = argument.find('=');
        const bool known = equals == std::string::npos
                               ? parse_flag(options, argument)
                               : parse_with_value(options, argument.substr(0, equals),
                                                  argument.substr(equals + 1));
        if (!known) {
            throw std::runtime_error(argument +
                                     ": unknown option, or one without its value; see --help");
        }
    }
    return options;
}

}  // namespace gpushm::mpi_test::operations
