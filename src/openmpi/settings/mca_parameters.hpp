// SPDX-License-Identifier: BSD-3-Clause
// What the MCA of an Open MPI that initialises has, and what its user has set.
#pragma once

#include "openmpi/binding/open_mpi_library.hpp"

#include <optional>
#include <set>
#include <string>

namespace gpushm::openmpi {

/** Where a component is. */
struct ComponentPlace {
    enum class Kind { nowhere, built_in, file, unknown };
    Kind kind = Kind::nowhere;
    std::string path;  // of the file
};

/** Finds mca_<framework>_<name>: built in or in a folder where this Open MPI looks. To be called
 * when the MCA has read its parameters. */
ComponentPlace find_component(const OpenMpiLibrary &library, const std::string &framework,
                              const std::string &name);

/** Whether it is anywhere. True also where that cannot be found out. */
inline bool has_component(const OpenMpiLibrary &library, const std::string &framework,
                          const std::string &name) {
    return find_component(library, framework, name).kind != ComponentPlace::Kind::nowhere;
}

/** What the first of the files of parameters that this Open MPI reads says; nothing where none has
 * it. To be called when the MCA has read them. */
std::optional<std::string> value_in_files(const OpenMpiLibrary &library,
                                          const std::string &parameter);

/** A list of components ("ucx,sm", or "^ucx,pt2pt" for all others) with one more that it allows. */
std::string allowing(const std::string &list, const std::string &component);

/** What the environment (also by mpirun --mca) and the user's own ~/.openmpi/mca-params.conf set.
 * Not the file of the installation, in which distributions exclude UCX. */
class UserParameters {
public:
    /** Reads the file, if there is one. */
    UserParameters();
    bool set(const std::string &parameter) const;

private:
    std::set<std::string> in_file_;
};

}  // namespace gpushm::openmpi
