// SPDX-License-Identifier: BSD-3-Clause
// The environment of the program to start, and the two ways in which gpushm-run may change it: set
// a variable that the user did not set, and add an element to a list.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace gpushm::tools {

/** A copy of an environment; the process's own is never changed. */
class Environment {
public:
    /** `entries` as in environ(7): "NAME=VALUE" strings, ended by null. */
    explicit Environment(const char *const *entries);

    /** Null when the variable is not there; an empty value is there. Valid until the next set(). */
    const char *find(const std::string &name) const;
    void set(const std::string &name, const std::string &value);

    /** "NAME=VALUE", in the order given, new ones at the end. */
    const std::vector<std::string> &entries() const { return entries_; }

private:
    std::vector<std::string> entries_;
};

/** What became of one variable, and why. */
struct Change {
    enum class Kind { set, extended, kept };
    Kind kind;
    std::string name;
    std::string value;  // the variable's value afterwards
    std::string reason;
};

/** Sets `name` unless the user did. */
Change set_unless_present(Environment &environment, const std::string &name,
                          const std::string &value, const std::string &reason);

/** Adds `path` as the last element of the list `name`, unless a path with the same last component
 * that `is_there` is in it already; those that are not there are taken out. `separators`: the
 * characters that separate elements; the first one is written. Last, so that whatever the user put
 * there keeps its precedence. */
Change extend_path_list(Environment &environment, const std::string &name, const std::string &path,
                        const std::string &separators,
                        const std::function<bool(const std::string &path)> &is_there,
                        const std::string &reason);

/** The elements of a list, without empty ones. */
std::vector<std::string> split(const std::string &list, const std::string &separators);

/** `text` as one word of a POSIX shell; without quotes where it needs none. */
std::string shell_quote(const std::string &text);

}  // namespace gpushm::tools
