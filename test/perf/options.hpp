// SPDX-License-Identifier: BSD-3-Clause
// The command line of the benchmark programs: --key=value.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace gpushm::perf {

class Options {
public:
    /** `defaults`: every key that there is, with its value where the command line has none; there
     * are
     * --help and -h, too. Throws std::runtime_error on anything else. */
    Options(int argc, char **argv, std::map<std::string, std::string> defaults);

    const std::string &text(const std::string &key) const { return values_.at(key); }
    double number(const std::string &key) const;
    /** Whether help is wanted, and nothing else. */
    bool help() const { return help_; }
    /** Every key of the user's with its value. `manual`: what says what the keys mean. */
    std::string usage(const std::string &program,
                      const std::string &manual = "test/perf/README") const;
    bool is_given(const std::string &key) const { return !values_.at(key).empty(); }

    /** Lists are separated by commas; sizes may end with k, m or g, and A:B is A, 2 A, 4 A ... up
     * to B. */
    std::vector<std::string> list(const std::string &key) const;
    std::vector<int> integers(const std::string &key) const;
    std::vector<size_t> sizes(const std::string &key) const;

private:
    bool help_ = false;
    std::map<std::string, std::string> values_;
};

/** Binds the process to one CPU; negative: leaves it. */
void bind_to_cpu(int cpu);

}  // namespace gpushm::perf
