// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/settings/mca_parameters.hpp"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace gpushm::openmpi {
namespace {

/** The name in a line "name = value", with any white space (mca_base_parse_paramfile_lex.l). "":
 * the line is none. */
std::string name_in(const std::string &line) {
    constexpr char kSpace[] = " \t";
    const size_t begin = line.find_first_not_of(kSpace);
    if (begin == std::string::npos) {
        return "";
    }
    const size_t end = line.find_first_of(" \t=", begin);
    const size_t next = line.find_first_not_of(kSpace, end);
    return next != std::string::npos && line[next] == '=' ? line.substr(begin, end - begin) : "";
}

/** The folder that `folder` means, which may be a word for a default folder
 * (mca_base_component_repository.c). "": unknown. */
std::string meant_folder(const OpenMpiLibrary &library, const std::string &folder) {
    if (!folder.empty() && folder[0] == '/') {
        return folder;
    }
    const bool is_system = folder == "SYS_DEFAULT" || folder == "SYSTEM_DEFAULT";
    const auto *meant = static_cast<char *const *>(
        library.opal(is_system ? "mca_base_system_default_path" : "mca_base_user_default_path"));
    const bool is_word = is_system || folder == "USR_DEFAULT" || folder == "USER_DEFAULT";
    return is_word && meant != nullptr && *meant != nullptr ? *meant : "";
}

std::string value_in(const std::string &line) {
    const size_t begin = line.find_first_not_of(" \t", line.find('=') + 1);
    const size_t end = line.find_last_not_of(" \t\r");
    return begin != std::string::npos ? line.substr(begin, end - begin + 1) : "";
}

/** The value of the last line with `parameter`. */
std::optional<std::string> value_in_file(const std::string &path, const std::string &parameter) {
    std::optional<std::string> value;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (name_in(line) == parameter) {
            value = value_in(line);
        }
    }
    return value;
}

/** The paths of the parameter files, in the order of their precedence. */
std::string parameter_files(const OpenMpiLibrary &library) {
    int (*find)(const char *name, int *index);
    int (*get)(int index, const void *value, void *source, const char **file);
    int index = 0;
    const char *const *files = nullptr;
    const bool known = library.opal("mca_base_var_find_by_name", &find) &&
                       library.opal("mca_base_var_get_value", &get) &&
                       find("mca_base_param_files", &index) >= 0 &&
                       get(index, &files, nullptr, nullptr) == 0;
    return known && files != nullptr && *files != nullptr ? *files : "";
}

}  // namespace

std::optional<std::string> value_in_files(const OpenMpiLibrary &library,
                                          const std::string &parameter) {
    std::optional<std::string> value;
    std::istringstream paths(parameter_files(library));
    for (std::string path; !value && std::getline(paths, path, ',');) {
        value = value_in_file(path, parameter);
    }
    return value;
}

std::string allowing(const std::string &list, const std::string &component) {
    const bool excludes = list.compare(0, 1, "^") == 0;
    std::istringstream names(list.substr(excludes ? 1 : 0));
    std::string others;
    for (std::string name; std::getline(names, name, ',');) {
        if (name != component) {
            others += (others.empty() ? "" : ",") + name;
        }
    }
    if (excludes) {
        return others.empty() ? "" : "^" + others;
    }
    return others.empty() ? others : others + "," + component;
}

ComponentPlace find_component(const OpenMpiLibrary &library, const std::string &framework,
                              const std::string &name) {
    using Kind = ComponentPlace::Kind;
    const std::string component = "mca_" + framework + "_" + name;
    const auto *path = static_cast<char *const *>(library.opal("mca_base_component_path"));
    if (void *const known = library.as_bound((component + "_component").c_str())) {
        // MPI_T, before MPI_Init, has opened the files of all components.
        const std::string file = file_of(known);
        const bool is_own_file = file.find("/" + component + ".so") != std::string::npos;
        return is_own_file ? ComponentPlace{Kind::file, file} : ComponentPlace{Kind::built_in, {}};
    }
    if (path == nullptr || *path == nullptr) {
        return {Kind::unknown, {}};
    }
    std::istringstream folders(*path);
    bool all_seen = true;
    for (std::string folder; std::getline(folders, folder, ':');) {
        folder = meant_folder(library, folder);
        std::string file = folder;
        file.append("/").append(component).append(".so");
        all_seen = all_seen && !folder.empty();
        if (!folder.empty() && access(file.c_str(), F_OK) == 0) {
            return {Kind::file, file};
        }
    }
    return {all_seen ? Kind::nowhere : Kind::unknown, {}};
}

std::set<std::string> parameters_in_users_file() {
    std::set<std::string> found;
    const char *home = getenv("HOME");
    std::ifstream file(std::string(home != nullptr ? home : "") + "/.openmpi/mca-params.conf");
    for (std::string line; std::getline(file, line);) {
        found.insert(name_in(line));
    }
    return found;
}

}  // namespace gpushm::openmpi
