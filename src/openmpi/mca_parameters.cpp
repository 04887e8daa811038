// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/mca_parameters.hpp"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace gpushm::openmpi {
namespace {

/** Of a line "name = value", with any white space (mca_base_parse_paramfile_lex.l); "" where there is no such. */
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

/** A word stands for a default folder (mca_base_component_repository.c); "" where that is not known. */
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

}  // namespace

ComponentPlace find_component(const OpenMpiLibrary &library, const std::string &framework, const std::string &name) {
    using Kind = ComponentPlace::Kind;
    const std::string component = "mca_" + framework + "_" + name;
    const auto *path = static_cast<char *const *>(library.opal("mca_base_component_path"));
    if (library.as_bound((component + "_component").c_str()) != nullptr) {
        return {Kind::built_in, {}};
    }
    if (path == nullptr || *path == nullptr) {
        return {Kind::unknown, {}};
    }
    std::istringstream folders(*path);
    bool all_seen = true;
    for (std::string folder; std::getline(folders, folder, ':');) {
        folder = meant_folder(library, folder);
        const std::string file = folder + "/" + component + ".so";
        all_seen = all_seen && !folder.empty();
        if (!folder.empty() && access(file.c_str(), F_OK) == 0) {
            return {Kind::file, file};
        }
    }
    return {all_seen ? Kind::nowhere : Kind::unknown, {}};
}

UserParameters::UserParameters() {
    const char *home = getenv("HOME");
    std::ifstream file(std::string(home != nullptr ? home : "") + "/.openmpi/mca-params.conf");
    for (std::string line; std::getline(file, line);) {
        in_file_.insert(name_in(line));
    }
}

bool UserParameters::set(const std::string &parameter) const {
    return getenv(("OMPI_MCA_" + parameter).c_str()) != nullptr || in_file_.count(parameter) != 0;
}

}  // namespace gpushm::openmpi
