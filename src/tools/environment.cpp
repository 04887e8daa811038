// SPDX-License-Identifier: BSD-3-Clause
// The environment of the program to start: see environment.hpp.
#include "tools/environment.hpp"

namespace gpushm::tools {

namespace {

bool is_entry_of(const std::string &entry, const std::string &name) {
    return entry.size() > name.size() && entry[name.size()] == '=' &&
           entry.compare(0, name.size(), name) == 0;
}

std::string last_component(const std::string &path) {
    const size_t end = path.find_last_not_of('/');
    if (end == std::string::npos) {
        return "/";
    }
    const size_t slash = path.find_last_of('/', end);
    const size_t begin = slash == std::string::npos ? 0 : slash + 1;
    return path.substr(begin, end + 1 - begin);
}

/** The list without the elements of that last component. */
std::string without(const std::string &list, const std::string &name,
                    const std::string &separators) {
    std::string rest;
    for (const std::string &element : split(list, separators)) {
        if (last_component(element) != name) {
            rest += (rest.empty() ? "" : separators.substr(0, 1)) + element;
        }
    }
    return rest;
}

}  // namespace

Environment::Environment(const char *const *entries) {
    for (; *entries != nullptr; ++entries) {
        entries_.emplace_back(*entries);
    }
}

const char *Environment::find(const std::string &name) const {
    for (const std::string &entry : entries_) {
        if (is_entry_of(entry, name)) {
            return entry.c_str() + name.size() + 1;
        }
    }
    return nullptr;
}

void Environment::set(const std::string &name, const std::string &value) {
    std::string changed = name + "=" + value;
    for (std::string &entry : entries_) {
        if (is_entry_of(entry, name)) {
            entry = std::move(changed);
            return;
        }
    }
    entries_.push_back(std::move(changed));
}

Change set_unless_present(Environment &environment, const std::string &name,
                          const std::string &value, const std::string &reason) {
    if (const char *present = environment.find(name)) {
        return {Change::Kind::kept, name, present, "already in the environment"};
    }
    environment.set(name, value);
    return {Change::Kind::set, name, value, reason};
}

Change extend_path_list(Environment &environment, const std::string &name, const std::string &path,
                        const std::string &separators,
                        const std::function<bool(const std::string &path)> &is_there,
                        const std::string &reason) {
    const char *const present = environment.find(name);
    const std::string old_value = present != nullptr ? present : "";
    std::string gone;
    std::string value = old_value;
    for (const std::string &element : split(old_value, separators)) {
        if (last_component(element) != last_component(path)) {
            continue;
        }
        if (is_there(element)) {
            return {Change::Kind::kept, name, old_value, element + " is in it already"};
        }
        gone = element;
    }
    if (!gone.empty()) {
        value = without(old_value, last_component(path), separators);
    }
    value += (value.empty() ? "" : separators.substr(0, 1)) + path;
    environment.set(name, value);
    return {old_value.empty() ? Change::Kind::set : Change::Kind::extended, name, value,
            gone.empty() ? reason : reason + "; " + gone + " is not there any more"};
}

std::vector<std::string> split(const std::string &list, const std::string &separators) {
    std::vector<std::string> elements;
    size_t begin = 0;
    while ((begin = list.find_first_not_of(separators, begin)) != std::string::npos) {
        const size_t end = list.find_first_of(separators, begin);
        elements.push_back(list.substr(begin, end - begin));
        begin = end == std::string::npos ? list.size() : end;
    }
    return elements;
}

std::string shell_quote(const std::string &text) {
    constexpr const char *kPlain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/.,:_-+%@=";
    if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) {
        return text;
    }
    std::string quoted = "'";
    for (const char c : text) {
        quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return quoted + "'";
}

}  // namespace gpushm::tools
