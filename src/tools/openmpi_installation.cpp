// SPDX-License-Identifier: BSD-3-Clause
// The Open MPI whose mpirun is in PATH: see openmpi_installation.hpp.
#include "tools/openmpi_installation.hpp"

#include "tools/environment.hpp"
#include "tools/paths.hpp"
#include "tools/subprocess.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace gpushm::tools {

namespace {

std::string trimmed(const std::string &text) {
    constexpr const char *kBlanks = " \t\r\"";
    const size_t begin = text.find_first_not_of(kBlanks);
    return begin == std::string::npos
               ? std::string()
               : text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

void add_setting(const std::string &path, McaSource source, std::vector<McaSetting> &settings) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    if (auto value = mca_file_value(text.str(), "pml")) {
        settings.push_back({path, *value, source});
    }
}

/** What is there for this user only. */
std::string own_directory() {
    const char *home = getenv("HOME");
    return home != nullptr ? std::string(home) + "/.openmpi" : std::string();
}

/** The files that Open MPI reads (mca_base_var.c), the system's first. */
std::vector<McaSetting> find_pml_settings(const std::string &system_directory) {
    std::vector<McaSetting> settings;
    if (!system_directory.empty()) {
        add_setting(system_directory + "/openmpi-mca-params.conf", McaSource::system, settings);
    }
    if (!own_directory().empty()) {
        add_setting(own_directory() + "/mca-params.conf", McaSource::user, settings);
    }
    if (!system_directory.empty()) {
        add_setting(system_directory + "/openmpi-mca-params-override.conf",
                    McaSource::override_file, settings);
    }
    return settings;
}

/** pml/ucx is a file of its own in some builds; in others it is a part of the library that every
 * program of Open MPI links. */
std::optional<UcxInstallation> find_ucx(const std::string &component_directory,
                                        const std::string &ompi_info) {
    const std::string component = component_directory + "/mca_pml_ucx.so";
    return find_linked_ucx(access(component.c_str(), R_OK) == 0 ? inspect_library(component)
                                                                : inspect_program(ompi_info));
}

}  // namespace

std::optional<OpenMpiInstallation> find_open_mpi() {
    const auto mpirun = find_program("mpirun", getenv("PATH"));
    if (!mpirun) {
        return std::nullopt;
    }
    OpenMpiInstallation found;
    found.mpirun = *mpirun;
    const std::string banner = output_of({*mpirun, "--version"}).value_or("");
    if (banner.find("Open MPI") == std::string::npos) {
        return found;
    }
    found.version = parse_version(banner);
    // With pml=ucx, so that a configuration file does not hide the component.
    const std::string ompi_info = mpirun->substr(0, mpirun->find_last_of('/') + 1) + "ompi_info";
    const auto components = output_of({ompi_info, "--parsable"}, {"OMPI_MCA_pml=ucx"});
    if (components) {
        found.has_pml_ucx = components->find("mca:pml:ucx:") != std::string::npos;
    }
    const std::string paths = output_of({ompi_info, "--parsable", "--path", "all"}).value_or("");
    found.pml_settings = find_pml_settings(ompi_info_value(paths, "path:sysconfdir"));
    const std::string component_directory = ompi_info_value(paths, "path:pkglibdir");
    found.ucx = find_ucx(component_directory, ompi_info);
    found.enabled_in =
        find_enabled_component({own_directory() + "/components", component_directory});
    return found;
}

std::string other_mpi_of(const ProgramFile &program) {
    // libmpi.so.12 is the name that MPICH and the MPIs of its ABI share.
    for (const char *name : {"libmpich", "libmpi.so.12"}) {
        if (const LinkedLibrary *library = program.find_library(name)) {
            return "MPICH or one of its kin (" + library->name + ")";
        }
    }
    const std::string file = resolved(program.path);
    for (const char *launcher :
         {"mpiexec.hydra", "mpirun.hydra", "mpiexec.mpich", "mpirun.mpich", "mpiexec.gforker"}) {
        if (file_name(file) == launcher) {
            return "MPICH or one of its kin (" + file + ")";
        }
    }
    return {};
}

std::string find_enabled_component(const std::vector<std::string> &folders) {
    for (const std::string &folder : folders) {
        if (access((folder + "/mca_hook_gpushm.so").c_str(), F_OK) == 0) {
            return folder;
        }
    }
    return {};
}

std::string ompi_info_value(const std::string &text, const std::string &key) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.compare(0, key.size() + 1, key + ":") == 0) {
            return trimmed(line.substr(key.size() + 1));
        }
    }
    return {};
}

std::optional<std::string> mca_file_value(const std::string &text, const std::string &parameter) {
    std::optional<std::string> value;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        line.erase(std::min(line.find('#'), line.size()));
        const size_t equals = line.find('=');
        if (equals != std::string::npos && trimmed(line.substr(0, equals)) == parameter) {
            value = trimmed(line.substr(equals + 1));
        }
    }
    return value;
}

}  // namespace gpushm::tools
