// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/settings/mca_settings.hpp"

#include "openmpi/settings/mca_defaults.hpp"
#include "openmpi/settings/mca_parameters.hpp"

#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <string>

namespace gpushm::openmpi {
namespace {

constexpr McaDefault kDefaults[] = {kPml, kOsc, kOscPriority, kUcxTransports, kUcxDevices};

std::string variable_of(const char *parameter) {
    return std::string("OMPI_MCA_") + parameter;
}

bool names(const char *list_variable, const std::string &parameter) {
    const char *list = getenv(list_variable);
    std::istringstream elements(list != nullptr ? list : "");
    for (std::string name; std::getline(elements, name, ',');) {
        if (name == parameter) {
            return true;
        }
    }
    return false;
}

/** Whether gpushm has set the parameter, and it was not changed since. */
bool is_ours(const McaDefault &parameter) {
    const char *value = getenv(variable_of(parameter.name).c_str());
    return value != nullptr && strcmp(value, parameter.value) == 0 &&
           (names(kSetByGpushm, parameter.name) || names(kSetByProcess, parameter.name));
}

}  // namespace

bool is_the_users(const McaDefault &parameter) {
    const std::set<std::string> in_file = parameters_in_users_file();
    const auto is_set = [&in_file](const char *name) {
        return getenv(variable_of(name).c_str()) != nullptr || in_file.count(name) != 0;
    };
    bool found = is_set(parameter.name) && !is_ours(parameter);
    for (const char *synonym : parameter.synonyms) {
        found |= synonym != nullptr && is_set(synonym);
    }
    return found;
}

void set_default(const McaDefault &parameter) {
    if (is_the_users(parameter) || is_ours(parameter)) {
        return;
    }
    const char *list = getenv(kSetByProcess);
    const std::string longer = (list != nullptr ? std::string(list) + "," : "") + parameter.name;
    setenv(variable_of(parameter.name).c_str(), parameter.value, 1);
    setenv(kSetByProcess, longer.c_str(), 1);
}

void set_defaults() {
    set_default(kPml);
    set_default(kUcxTransports);
    set_default(kUcxDevices);
}

void cancel_defaults() {
    for (const McaDefault &parameter : kDefaults) {
        if (is_ours(parameter)) {
            unsetenv(variable_of(parameter.name).c_str());
        }
    }
    unsetenv(kSetByGpushm);
    unsetenv(kSetByProcess);
}

}  // namespace gpushm::openmpi
