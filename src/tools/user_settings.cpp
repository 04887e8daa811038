// SPDX-License-Identifier: BSD-3-Clause
#include "tools/user_settings.hpp"

#include "openmpi/settings/settings.hpp"
#include "tools/paths.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <initializer_list>

namespace gpushm::tools {

namespace {

constexpr const char *kInCommandLine = "in the command line";

bool excludes(const std::string &list) {
    return !list.empty() && list[0] == '^';
}

/** Whether `word` is one of mpirun's options `names`, behind one dash or two. */
bool is_option(const std::string &word, std::initializer_list<const char *> names) {
    const size_t dashes = std::min<size_t>(word.find_first_not_of('-'), 3);
    return (dashes == 1 || dashes == 2) &&
           std::find(names.begin(), names.end(), word.substr(dashes)) != names.end();
}

std::string consequence(bool ucx_has_cuda) {
    return ucx_has_cuda ? "GPU buffers do not go through gpushm"
                        : "GPU buffers do not work with it";
}

/** Empty: the list `name` allows all of `needed`, or is not set. */
std::optional<Exclusion> excluding_list(const UserSettings &user, const std::string &name,
                                        const std::vector<std::string> &needed,
                                        const std::string &result) {
    const auto setting = find_variable(user, name);
    if (!setting) {
        return std::nullopt;
    }
    std::string missing;
    for (const std::string &element : needed) {
        if (!ucx_list_allows(setting->value, element)) {
            missing += (missing.empty() ? "" : ",") + element;
        }
    }
    if (missing.empty()) {
        return std::nullopt;
    }
    const bool meant = excludes(setting->value);
    return Exclusion{setting->words() + " keeps gpushm out, " + result + ": " +
                         (meant ? "take " : "add ") + missing + (meant ? " out of it" : " to it"),
                     meant};
}

}  // namespace

std::optional<UserSetting> find_variable(const UserSettings &user, const std::string &name) {
    if (const auto argument = export_argument(user.command, name)) {
        return UserSetting{*argument, "-x " + name + "=" + *argument, kInCommandLine};
    }
    if (const char *present = user.environment.find(name)) {
        return UserSetting{present, name + "=" + present, "in the environment"};
    }
    return std::nullopt;
}

std::optional<UserSetting> find_mca_parameter(const UserSettings &user, const std::string &name) {
    const std::string variable = "OMPI_MCA_" + name;
    const auto argument = mca_argument(user.command, name);
    // mpirun makes a variable of --mca, which -x overrides.
    if (argument && !export_argument(user.command, variable)) {
        return UserSetting{*argument, "--mca " + name + " " + *argument, kInCommandLine};
    }
    return find_variable(user, variable);
}

std::vector<Exclusion> excluding_ucx_settings(const UserSettings &user, bool ucx_has_cuda) {
    std::vector<Exclusion> found;
    const std::string result = consequence(ucx_has_cuda);
    if (auto exclusion = excluding_list(user, "UCX_TLS", {"gpushm"}, result)) {
        found.push_back(std::move(*exclusion));
    }
    // The device for messages, and the device with which UCX recognises GPU memory.
    if (auto exclusion = excluding_list(user, "UCX_SHM_DEVICES", {"gpushm", "gpucopy"}, result)) {
        found.push_back(std::move(*exclusion));
    }
    return found;
}

std::optional<Exclusion> excluding_modules(const UserSettings &user) {
    return excluding_list(user, "UCX_MODULES", {"gpushm"}, "UCX 1.22 and newer do not load it");
}

std::optional<Exclusion> excluding_pml(const UserSettings &user, bool ucx_has_cuda) {
    const auto pml = find_mca_parameter(user, "pml");
    if (!pml || mca_list_allows(pml->value, "ucx")) {
        return std::nullopt;
    }
    const auto in_open_mpi = find_variable(user, "UCX_GPUSHM_OPENMPI");
    return Exclusion{pml->words() + " keeps Open MPI from sending through UCX, " +
                         consequence(ucx_has_cuda) + ": remove it, or name ucx in it",
                     in_open_mpi && openmpi::switches_off(in_open_mpi->value.c_str())};
}

bool is_mpirun(const std::string &program) {
    const std::string name = file_name(program);
    const auto names = {"mpirun", "mpiexec",        "orterun",        "prterun",
                        "oshrun", "mpirun.openmpi", "mpiexec.openmpi"};
    return std::find(names.begin(), names.end(), name) != names.end();
}

std::optional<std::string> mca_argument(const std::vector<std::string> &command,
                                        const std::string &name) {
    std::optional<std::string> value;
    if (command.empty() || !is_mpirun(command[0])) {
        return value;
    }
    for (size_t i = 1; i + 2 < command.size(); ++i) {
        if (is_option(command[i], {"mca", "gmca", "omca"}) && command[i + 1] == name) {
            value = command[i + 2];
            i += 2;
        }
    }
    return value;
}

std::optional<std::string> export_argument(const std::vector<std::string> &command,
                                           const std::string &name) {
    std::optional<std::string> value;
    if (command.empty() || !is_mpirun(command[0])) {
        return value;
    }
    const std::string beginning = name + "=";
    for (size_t i = 1; i + 1 < command.size(); ++i) {
        if (is_option(command[i], {"x"}) &&
            command[i + 1].compare(0, beginning.size(), beginning) == 0) {
            value = command[i + 1].substr(beginning.size());
        }
    }
    return value;
}

bool mca_list_allows(const std::string &list, const std::string &component) {
    const std::vector<std::string> names = split(list.substr(excludes(list) ? 1 : 0), ", ");
    const bool named = std::find(names.begin(), names.end(), component) != names.end();
    return names.empty() || named != excludes(list);
}

bool ucx_list_allows(const std::string &list, const std::string &name) {
    for (const std::string &element : split(list.substr(excludes(list) ? 1 : 0), ", ")) {
        if (fnmatch(element.c_str(), name.c_str(), 0) == 0 ||
            (element == "all" && !excludes(list))) {
            return !excludes(list);
        }
    }
    return excludes(list);
}

}  // namespace gpushm::tools
