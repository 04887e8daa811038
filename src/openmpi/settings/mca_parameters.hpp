// SPDX-License-Identifier: BSD-3-Clause
// The components and parameters of an Open MPI that is initialising, and the user's parameters.
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"

#include <optional>
#include <set>
#include <string>

namespace gpushm::openmpi {

/** The place of a component. */
struct ComponentPlace {
    enum class Kind { nowhere, built_in, file, unknown };
    Kind kind = Kind::nowhere;
    std::string path;  // of the file
};

/** Finds mca_<framework>_<name>, built in or in a folder that this Open MPI searches. Call it when
 * the MCA has read its parameters. */
ComponentPlace find_component(const OpenMpiLibrary &library, const std::string &framework,
                              const std::string &name);

/** True also if the answer cannot be found. */
inline bool has_component(const OpenMpiLibrary &library, const std::string &framework,
                          const std::string &name) {
    return find_component(library, framework, name).kind != ComponentPlace::Kind::nowhere;
}

/** The parameter's value in the first parameter file that has it, of those that this Open MPI
 * reads. Call it when the MCA has read them. */
std::optional<std::string> value_in_files(const OpenMpiLibrary &library,
                                          const std::string &parameter);

/** A list of components ("ucx,sm", or "^ucx,pt2pt" for all others), changed so that it allows
 * `component`. */
std::string allowing(const std::string &list, const std::string &component);

/** The parameters in ~/.openmpi/mca-params.conf. The file of the installation does not count as the
 * user's, because distributions exclude UCX there. */
std::set<std::string> parameters_in_users_file();

}  // namespace gpushm::openmpi
