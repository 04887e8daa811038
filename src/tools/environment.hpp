// SPDX-License-Identifier: BSD-3-Clause
// The environment of the program to start. gpushm-run may change it in two ways: it sets a variable
// that the user has not set, and adds an element to a list.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace gpushm::tools {

/** A copy of an environment. The environment of the process stays as it is. */
class Environment {
public:
    /** `entries` as in environ(7): "NAME=VALUE" strings, ended by null. */
    explicit Environment(const char *const *entries);

    /** The value of a variable, which may be empty. Null: it is not set. Valid until the next
     * set(). */
    const char *find(const std::string &name) const;
    void set(const std::string &name, const std::string &value);

    /** The entries "NAME=VALUE" in their original order, with new ones at the end. */
    const std::vector<std::string> &entries() const { return entries_; }

private:
    std::vector<std::string> entries_;
};

/** A change of one variable, and its reason. */
struct Change {
    enum class Kind { set, extended, kept };
    Kind kind;
    std::string name;
    std::string value;  // after the change
    std::string reason;
};

/** Sets `name` unless the user has set it. */
Change set_unless_present(Environment &environment, const std::string &name,
                          const std::string &value, const std::string &reason);

/** Adds `path` to the list `name`, as the last element, so that the user's elements keep their
 * precedence. Does not add it if the list has an existing path (`is_there`) with the last component
 * of `path`, and removes such paths that do not exist. `separators`: the characters between
 * elements; the first one is written. */
Change extend_path_list(Environment &environment, const std::string &name, const std::string &path,
                        const std::string &separators,
                        const std::function<bool(const std::string &path)> &is_there,
                        const std::string &reason);

/** The elements of a list that are not empty. */
std::vector<std::string> split(const std::string &list, const std::string &separators);

/** `text` as one word of a POSIX shell, with quotes only if it needs them. */
std::string shell_quote(const std::string &text);

}  // namespace gpushm::tools
