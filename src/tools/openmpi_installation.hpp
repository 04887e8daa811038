// SPDX-License-Identifier: BSD-3-Clause
// The Open MPI whose mpirun is in PATH.
#pragma once

#include "tools/ucx_installation.hpp"
#include "tools/version.hpp"

#include <optional>
#include <string>
#include <vector>

namespace gpushm::tools {

/** A value that a configuration file gives to an MCA parameter. */
struct McaSetting {
    std::string file;
    std::string value;
    bool overrides_environment = false;  // set by openmpi-mca-params-override.conf
};

struct OpenMpiInstallation {
    std::string mpirun;
    std::optional<Version> version;   // empty: this mpirun is of another MPI
    std::optional<bool> has_pml_ucx;  // empty: ompi_info did not tell
    std::vector<McaSetting> pml_settings;
    std::optional<UcxInstallation> ucx;  // the one that its ranks load
};

/** Empty when no mpirun is in PATH. */
std::optional<OpenMpiInstallation> find_open_mpi();

/** Values in what `ompi_info --parsable` prints: "path:libdir:/usr/lib" is the value "/usr/lib" of
 *  the key "path:libdir". Empty when the key is not there. */
std::string ompi_info_value(const std::string &text, const std::string &key);

/** The value of `parameter` in an MCA parameter file ("name = value" lines, '#' comments); the last
 *  one counts. */
std::optional<std::string> mca_file_value(const std::string &text, const std::string &parameter);

}  // namespace gpushm::tools
