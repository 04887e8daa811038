// SPDX-License-Identifier: BSD-3-Clause
// What the user set, in the environment or in the command line of mpirun, and what of it keeps
// gpushm out.
#pragma once

#include "tools/environment.hpp"

#include <optional>
#include <string>
#include <vector>

namespace gpushm::tools {

struct UserSettings {
    const Environment &environment;
    const std::vector<std::string> &command;  // may be empty
};

struct UserSetting {
    std::string value;
    std::string text;   // as the user wrote it: "--mca pml ob1"
    std::string place;  // "in the command line"

    std::string words() const { return text + " " + place; }
};

/** The value that the program sees: -x in the command line of mpirun wins over the environment. */
std::optional<UserSetting> find_variable(const UserSettings &user, const std::string &name);

/** The same for a parameter of Open MPI. */
std::optional<UserSetting> find_mca_parameter(const UserSettings &user, const std::string &name);

/** A setting that keeps gpushm out. */
struct Exclusion {
    std::string line;    // what it is, what follows, and what to do
    bool meant = false;  // the user named gpushm, or switched it off
};

/** UCX_TLS and UCX_SHM_DEVICES. `ucx_has_cuda`: GPU buffers need not have gpushm. */
std::vector<Exclusion> excluding_ucx_settings(const UserSettings &user, bool ucx_has_cuda);

/** UCX_MODULES, which matters where nothing but UCX_PLUGIN_PATH brings gpushm. */
std::optional<Exclusion> excluding_modules(const UserSettings &user);

/** Open MPI's pml. */
std::optional<Exclusion> excluding_pml(const UserSettings &user, bool ucx_has_cuda);

bool is_mpirun(const std::string &program);

/** The value of `--mca NAME VALUE` in the command line of Open MPI's mpirun; empty when the command
 * is no mpirun or does not have it. The last one counts. */
std::optional<std::string> mca_argument(const std::vector<std::string> &command,
                                        const std::string &name);

/** The same for `-x NAME=VALUE`. */
std::optional<std::string> export_argument(const std::vector<std::string> &command,
                                           const std::string &name);

/** Whether an MCA selection list ("ucx,ob1", or "^ucx" to exclude; empty: all) allows `component`.
 */
bool mca_list_allows(const std::string &list, const std::string &component);

/** The same for UCX's lists, in which "all" names everything. Patterns, which only UCX_MODULES may
 * have, and a backslash before a name, which UCX_TLS may have, are understood in all. */
bool ucx_list_allows(const std::string &list, const std::string &name);

}  // namespace gpushm::tools
