// SPDX-License-Identifier: BSD-3-Clause
// The command line of ucp_peer.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace gpushm::ucp_test {

/** `NAME --key=value ... ` */
class Options {
public:
    /** Fails the test on anything else. */
    Options(int argc, char **argv);

    const std::string &scenario() const { return scenario_; }
    bool has(const std::string &key) const { return values_.count(key) != 0; }
    std::string text(const std::string &key, const std::string &fallback) const;
    size_t number(const std::string &key, size_t fallback) const;
    /** A list, separated by commas. */
    std::vector<std::string> list(const std::string &key, const std::string &fallback) const;

private:
    std::string scenario_;
    std::map<std::string, std::string> values_;
};

}  // namespace gpushm::ucp_test
