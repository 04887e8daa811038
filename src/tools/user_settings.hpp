// SPDX-License-Identifier: BSD-3-Clause
// The user's settings in the environment and in the command line of mpirun, and those that keep
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

/** The value that the program gets: -x in mpirun's command line overrides the environment. */
std::optional<UserSetting> find_variable(const UserSettings &user, const std::string &name);

/** The value of a parameter of Open MPI that the program gets. */
std::optional<UserSetting> find_mca_parameter(const UserSettings &user, const std::string &name);

/** A setting that keeps gpushm out. */
struct Exclusion {
    std::string line;    // the setting, its consequence, and what to do
    bool meant = false;  // on purpose: the user excluded gpushm, or switched it off
};

/** In UCX_TLS and UCX_SHM_DEVICES. `ucx_has_cuda`: GPU buffers work without gpushm. */
std::vector<Exclusion> excluding_ucx_settings(const UserSettings &user, bool ucx_has_cuda);

/** In UCX_MODULES, which matters if gpushm is loaded by UCX_PLUGIN_PATH alone. */
std::optional<Exclusion> excluding_modules(const UserSettings &user);

/** In Open MPI's parameter pml. */
std::optional<Exclusion> excluding_pml(const UserSettings &user, bool ucx_has_cuda);

bool is_mpirun(const std::string &program);

/** The last value of `--mca NAME VALUE` in the command line of Open MPI's mpirun. Empty: the
 * command is no mpirun or does not have it. */
std::optional<std::string> mca_argument(const std::vector<std::string> &command,
                                        const std::string &name);

/** The last value of `-x NAME=VALUE` in such a command line. */
std::optional<std::string> export_argument(const std::vector<std::string> &command,
                                           const std::string &name);

/** Whether an MCA selection list ("ucx,ob1", or "^ucx" to exclude; empty: all) allows `component`.
 */
bool mca_list_allows(const std::string &list, const std::string &component);

/** Whether a list of UCX allows `component`; "all" allows everything. Patterns, which only
 * UCX_MODULES may have, and a backslash before a name, which UCX_TLS may have, are understood in
 * all lists. */
bool ucx_list_allows(const std::string &list, const std::string &name);

}  // namespace gpushm::tools
