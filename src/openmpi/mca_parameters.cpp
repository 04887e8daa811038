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

}  // namespace

bool has_component(const OpenMpiLibrary &library, const std::string &framework, const std::string &name) {
    const std::string component = "mca_" + framework + "_" + name;
    const auto *path = static_cast<char *const *>(library.opal("mca_base_component_path"));
    if (library.as_bound((component + "_component").c_str()) != nullptr || path == nullptr || *path == nullptr) {
        return true;
    }
    std::istringstream folders(*path);
    for (std::string folder; std::getline(folders, folder, ':');) {
        // A word stands for a default folder (mca_base_component_repository.c).
        if (folder.empty() || folder[0] != '/' ||
            access((folder + "/" + component + ".so").c_str(), F_OK) == 0) {
            return true;
        }
    }
    return false;
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
