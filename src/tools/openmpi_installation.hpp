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
    std::optional<Version> version;   // empty: this mpirun is of another MPI
    std::optional<bool> has_pml_ucx;  // empty: ompi_info did not tell
    std::vector<McaSetting> pml_settings;
    std::optional<UcxInstallation> ucx;  // the one that its ranks load
    std::string
        enabled_in;  // the folder where gpushm's component was put (gpushm-openmpi); empty: none
};

/** Empty when no mpirun is in PATH. */
std::optional<OpenMpiInstallation> find_open_mpi();

/** What says that a program links or starts an MPI other than Open MPI: "MPICH (libmpich.so.12)".
 * Empty where nothing says so. */
std::string other_mpi_of(const ProgramFile &program);

/** The first of the folders in which gpushm's component is; empty when it is in none. */
std::string find_enabled_component(const std::vector<std::string> &folders);

/** Values in what `ompi_info --parsable` prints: "path:libdir:/usr/lib" is the value "/usr/lib" of
 * the key "path:libdir". Empty when the key is not there. */
std::string ompi_info_value(const std::string &text, const std::string &key);

/** The value of `parameter` in an MCA parameter file ("name = value" lines, '#' comments); the last
 * one counts. */
std::optional<std::string> mca_file_value(const std::string &text, const std::string &parameter);

}  // namespace gpushm::tools
