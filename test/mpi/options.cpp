// SPDX-License-Identifier: BSD-3-Clause
// Options are "--name" or "--name VALUE"; a value may also follow "=".
#include "options.hpp"

#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace gpushm::mpi_test {

const char *const kUsage =
    "usage: mpirun -n 2 pairs [OPTIONS]\n"
    "Sends messages between two ranks for each pair of memory kinds and checks every byte.\n"
    "  --kinds LIST       of host,pinned,device,managed (default: all that there are)\n"
    "  --max-size BYTES   largest message, K and M allowed (default: 64M)\n"
    "  --quick            nine pairs, up to 4M, fewer alignments\n"
    "  --device A[,B]     CUDA device of rank 0 and of rank 1 (default: rank modulo devices)\n"
    "  --same-device      both ranks on device 0\n"
    "  --table            after the tests, a table of latencies\n"
    "  --bench            only the table, with ten times the iterations\n"
    "  --timeout SECONDS  give up when one message takes longer (default: 300)\n"
    "  --driver           only say which CUDA driver there is; status 1 if none\n";

namespace {

std::vector<std::string> split(const std::string &list) {
    std::vector<std::string> parts;
    std::istringstream stream(list);
    for (std::string part; std::getline(stream, part, ',');) {
        parts.push_back(part);
    }
    return parts;
}

size_t parse_number(const std::string &option, const std::string &text) {
    char *end = nullptr;
    const unsigned long long value = std::strtoull(text.c_str(), &end, 10);
    const std::string unit = end;
    if (end != text.c_str() && text[0] != '-') {
        if (unit.empty()) {
            return value;
        }
        if (unit == "K" || unit == "k") {
            return value << 10;
        }
        if (unit == "M" || unit == "m") {
            return value << 20;
        }
    }
    throw std::runtime_error(option + " " + text + ": not a number");
}

MemoryKind parse_kind(const std::string &text) {
    for (MemoryKind kind :
         {MemoryKind::host, MemoryKind::pinned, MemoryKind::device, MemoryKind::managed}) {
        if (text == to_string(kind)) {
            return kind;
        }
    }
    throw std::runtime_error("--kinds " + text + ": not one of host, pinned, device, managed");
}

std::vector<MemoryKind> parse_kinds(const std::string &list) {
    std::vector<MemoryKind> kinds;
    for (const std::string &part : split(list)) {
        kinds.push_back(parse_kind(part));
    }
    if (kinds.empty()) {
        throw std::runtime_error("--kinds: empty list");
    }
    return kinds;
}

std::vector<int> parse_devices(const std::string &list) {
    std::vector<int> devices;
    for (const std::string &part : split(list)) {
        devices.push_back(static_cast<int>(parse_number("--device", part)));
    }
    if (devices.size() == 1) {
        devices.push_back(devices[0]);
    }
    if (devices.size() != 2) {
        throw std::runtime_error("--device " + list + ": expected one device or two");
    }
    return devices;
}

}  // namespace

Options parse_options(int argc, char **argv) {
    Options options;
    bool max_size_given = false;
    for (int i = 1; i < argc; ++i) {
        std::string name = argv[i];
        std::string value;
        const size_t equals = name.find('=');
        const bool joined = equals != std::string::npos;
        if (joined) {
            value = name.substr(equals + 1);
            name = name.substr(0, equals);
        }
        auto take_value = [&]() -> const std::string & {
            if (!joined) {
                if (++i == argc) {
                    throw std::runtime_error(name + " needs a value");
                }
                value = argv[i];
            }
            return value;
        };
        if (name == "--kinds") {
            options.kinds = parse_kinds(take_value());
        } else if (name == "--max-size") {
            options.max_size = parse_number(name, take_value());
            max_size_given = true;
        } else if (name == "--device") {
            options.devices = parse_devices(take_value());
        } else if (name == "--timeout") {
            options.timeout_s = static_cast<unsigned>(parse_number(name, take_value()));
        } else if (joined) {
            throw std::runtime_error(std::string(argv[i]) +
                                     ": unknown option, or one without a value; see --help");
        } else if (name == "--same-device") {
            options.devices = {0, 0};
        } else if (name == "--quick") {
            options.quick = true;
        } else if (name == "--table") {
            options.table = true;
        } else if (name == "--bench") {
            options.table = true;
            options.tests = false;
            options.repeat = 10;
        } else if (name == "--driver") {
            options.only_driver = true;
        } else if (name == "--help" || name == "-h") {
            options.help = true;
        } else {
            throw std::runtime_error(name + ": unknown option; see --help");
        }
    }
    if (options.quick && !max_size_given) {
        options.max_size = size_t{4} << 20;
    }
    return options;
}

}  // namespace gpushm::mpi_test
