// SPDX-License-Identifier: BSD-3-Clause
// The Open MPI whose mpirun is in PATH.
#pragma once

#include "tools/linked_libraries.hpp"
#include "tools/ucx_installation.hpp"
#include "tools/version.hpp"

#include <optional>
#include <string>
#include <vector>

namespace gpushm::tools {

/** Configuration files of Open MPI. */
enum class McaSource {
    system,         // openmpi-mca-params.conf
    user,           // ~/.openmpi/mca-params.conf
    override_file,  // openmpi-mca-params-override.conf, which no variable of the environment
                    // overrides
};

/** A value that a configuration file gives to an MCA parameter. */
struct McaSetting {
    std::string file;
    std::string value;
    McaSource source = McaSource::system;
};

struct OpenMpiInstallation {
    std::string mpirun;
    std::optional<Version> version;   // empty: this mpirun belongs to another MPI
    std::optional<bool> has_pml_ucx;  // empty: unknown, because ompi_info failed
    std::vector<McaSetting> pml_settings;
    std::optional<UcxInstallation> ucx;  // the UCX that its ranks load
    std::string enabled_in;  // the folder with gpushm's component (gpushm-openmpi); empty: none
};

/** Empty: no mpirun is in PATH. */
std::optional<OpenMpiInstallation> find_open_mpi();

/** The MPI other than Open MPI that a program is linked to or starts: "MPICH (libmpich.so.12)".
 * Empty: none is found. */
std::string other_mpi_of(const ProgramFile &program);

/** The first of the folders that has gpushm's component. Empty: none. */
std::string find_enabled_component(const std::vector<std::string> &folders);

/** A value in the output of `ompi_info --parsable`: "path:libdir:/usr/lib" has the value "/usr/lib"
 * for the key "path:libdir". Empty: the key is missing. */
std::string ompi_info_value(const std::string &text, const std::string &key);

/** The last value of `parameter` in an MCA parameter file (lines "name = value", comments with
 * '#'). */
std::optional<std::string> mca_file_value(const std::string &text, const std::string &parameter);

}  // namespace gpushm::tools
