// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include "check.hpp"

#include <sstream>

namespace gpushm::ucp_test {

Options::Options(int argc, char **argv) {
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument.compare(0, 2, "--") != 0) {
            scenario_ = argument;
            continue;
        }
        const size_t equals = argument.find('=');
        values_[argument.substr(2, equals - 2)] =
            equals == std::string::npos ? "" : argument.substr(equals + 1);
    }
    if (scenario_.empty()) {
        fail("usage: %s SCENARIO [--key=value ...]", argc > 0 ? argv[0] : "ucp_peer");
    }
}

std::string Options::text(const std::string &key, const std::string &fallback) const {
    const auto found = values_.find(key);
    return found != values_.end() ? found->second : fallback;
}

size_t Options::number(const std::string &key, size_t fallback) const {
    return has(key) ? std::stoul(values_.at(key)) : fallback;
}

std::vector<std::string> Options::list(const std::string &key, const std::string &fallback) const {
    std::vector<std::string> items;
    std::istringstream stream(text(key, fallback));
    for (std::string item; std::getline(stream, item, ',');) {
        items.push_back(item);
    }
    return items;
}

}  // namespace gpushm::ucp_test
