// SPDX-License-Identifier: BSD-3-Clause
// What gpushm-run changes in a program's environment: see launch_plan.hpp.
#include "tools/launch_plan.hpp"

#include "openmpi/mca_defaults.hpp"

#include <algorithm>

namespace gpushm::tools {

namespace {

constexpr const char *kPreloadSeparators = ": ";  // ld.so(8): colons or spaces
constexpr const char *kNoGpuBuffers = "GPU buffers do not work with it";

std::string describe(const UcxInstallation &ucx) {
    return "UCX " + to_string(ucx.version) + " (" + ucx.libucp_path + ")";
}

void add_preload(const LaunchFacts &facts, const GpushmFiles &files, const std::string &reason,
                 Environment &environment, LaunchPlan &plan) {
    if (files.preload().find_first_of(kPreloadSeparators) != std::string::npos) {
        plan.warnings.push_back("LD_PRELOAD cannot name " + files.preload() +
                                ", which has a blank or a colon in its path: "
                                "install gpushm elsewhere; the program runs without it");
        return;
    }
    plan.changes.push_back(
        extend_path_list(environment, "LD_PRELOAD", files.preload(), kPreloadSeparators, reason));
    if (!facts.preload_obstacle.empty()) {
        plan.notes.push_back("LD_PRELOAD has no effect on " + facts.command[0] +
                             " itself: " + facts.preload_obstacle);
    }
}

void add_plugin_path(const GpushmFiles &files, const std::string &reason, Environment &environment,
                     LaunchPlan &plan) {
    plan.changes.push_back(
        extend_path_list(environment, "UCX_PLUGIN_PATH", files.directory, ":", reason));
}

/** How gpushm gets into UCX. False when the program's UCX is known to be one it does not serve. */
bool plan_loading(const LaunchFacts &facts, const GpushmFiles &files, Environment &environment,
                  LaunchPlan &plan) {
    const std::string obstacle = facts.ucx ? why_not_served(*facts.ucx) : std::string();
    if (!obstacle.empty()) {
        plan.warnings.push_back(obstacle + (facts.links_ucx
                                                ? "; the program runs without gpushm"
                                                : "; only a program with another UCX gets gpushm"));
        if (facts.links_ucx) {
            return false;
        }
    }
    const bool reads_plugin_path =
        facts.ucx && obstacle.empty() && loading_of(facts.ucx->version) == Loading::plugin_path;
    if (facts.links_ucx) {
        if (reads_plugin_path) {
            add_plugin_path(files, "the program links " + describe(*facts.ucx), environment, plan);
        } else {
            add_preload(facts, files,
                        "the program links " + describe(*facts.ucx) +
                            ", which loads no plugins by their path",
                        environment, plan);
        }
        return true;
    }
    add_preload(facts, files,
                facts.ucx ? "the program does not link UCX itself; it may start or load any UCX"
                          : "no UCX is found beforehand; the program may bring its own",
                environment, plan);
    if (reads_plugin_path) {
        add_plugin_path(files, "the loader finds " + describe(*facts.ucx), environment, plan);
    }
    return true;
}

void set_mca(const openmpi::McaDefault &parameter, const std::string &reason, const LaunchFacts &facts,
             Environment &environment, LaunchPlan &plan) {
    const std::string name = parameter.name;
    for (const char *other : parameter.synonyms) {
        const std::string synonym = other != nullptr ? other : name;
        const char *present = environment.find("OMPI_MCA_" + synonym);
        const auto argument = mca_argument(facts.command, synonym);
        if (other != nullptr && (present != nullptr || argument)) {
            plan.changes.push_back({Change::Kind::kept, "OMPI_MCA_" + synonym,
                                    argument ? *argument : present, "set already"});
            return;
        }
    }
    if (const auto argument = mca_argument(facts.command, name)) {
        plan.changes.push_back({Change::Kind::kept, "OMPI_MCA_" + name, *argument,
                                "--mca " + name + " " + *argument + " in the command line"});
        return;
    }
    plan.changes.push_back(set_unless_present(environment, "OMPI_MCA_" + name, parameter.value, reason));
}

/** openmpi/mca_defaults.hpp says why. */
void plan_open_mpi(const LaunchFacts &facts, Environment &environment, LaunchPlan &plan) {
    set_mca(openmpi::kPml, "Open MPI sends messages through UCX", facts, environment, plan);
    if (!mca_list_allows(plan.changes.back().value, "ucx")) {
        plan.notes.push_back("Open MPI's pml is \"" + plan.changes.back().value +
                             "\", not ucx: " + kNoGpuBuffers);
    }
    set_mca(openmpi::kOsc,
            "Open MPI's one-sided operations go through UCX, shared windows do not", facts,
            environment, plan);
    if (plan.changes.back().kind == Change::Kind::set) {
        set_mca(openmpi::kOscPriority, "osc/sm gets shared windows only", facts, environment,
                plan);
    } else if (!mca_list_allows(plan.changes.back().value, "ucx")) {
        plan.notes.push_back("Open MPI's osc is \"" + plan.changes.back().value +
                             "\", not ucx: one-sided operations on " + kNoGpuBuffers);
    }
    set_mca(openmpi::kUcxTransports, "Open MPI accepts UCX whatever its transports are", facts,
            environment, plan);
    set_mca(openmpi::kUcxDevices, "Open MPI prefers UCX whatever its devices are",
            facts, environment, plan);
}

/** UCX's lists are like MCA lists, but "all" names everything (src/ucs/config/parser.c). */
bool ucx_list_allows_gpushm(const std::string &list) {
    const bool excludes = !list.empty() && list[0] == '^';
    return mca_list_allows(list, "gpushm") || (!excludes && mca_list_allows(list, "all"));
}

bool is_mpirun(const std::string &program) {
    const std::string name = program.substr(program.find_last_of('/') + 1);
    const auto names = {"mpirun", "mpiexec",        "orterun",        "prterun",
                        "oshrun", "mpirun.openmpi", "mpiexec.openmpi"};
    return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

LaunchPlan plan_launch(const LaunchFacts &facts, const GpushmFiles &files,
                       Environment &environment) {
    LaunchPlan plan;
    LaunchFacts known = facts;
    if (!facts.command.empty() && is_mpirun(facts.command[0])) {
        known.links_ucx = false;  // an Open MPI with its components built in links UCX into mpirun, too
    }
    if (!plan_loading(known, files, environment, plan)) {
        return plan;
    }
    if (!known.links_ucx || known.links_mpi) {
        plan_open_mpi(known, environment, plan);
    }
    for (std::string &note : excluding_settings(environment)) {
        plan.notes.push_back(std::move(note));
    }
    return plan;
}

std::vector<std::string> excluding_settings(const Environment &environment) {
    std::vector<std::string> notes;
    const char *transports = environment.find("UCX_TLS");
    if (transports != nullptr && !ucx_list_allows_gpushm(transports)) {
        notes.push_back(std::string("UCX_TLS=") + transports +
                        " does not allow gpushm: add gpushm to it to have GPU buffers");
    }
    const char *modules = environment.find("UCX_MODULES");
    if (modules != nullptr && !ucx_list_allows_gpushm(modules)) {
        notes.push_back(std::string("UCX_MODULES=") + modules +
                        " does not allow gpushm: UCX 1.22 and newer will not load it");
    }
    return notes;
}

std::optional<std::string> mca_argument(const std::vector<std::string> &command,
                                        const std::string &name) {
    std::optional<std::string> value;
    if (command.empty() || !is_mpirun(command[0])) {
        return value;
    }
    for (size_t i = 1; i + 2 < command.size(); ++i) {
        const size_t dashes = std::min<size_t>(command[i].find_first_not_of('-'), 3);
        const std::string option = command[i].substr(dashes);
        if ((dashes == 1 || dashes == 2) &&
            (option == "mca" || option == "gmca" || option == "omca") && command[i + 1] == name) {
            value = command[i + 2];
            i += 2;
        }
    }
    return value;
}

bool mca_list_allows(const std::string &list, const std::string &component) {
    const bool excludes = !list.empty() && list[0] == '^';
    const std::vector<std::string> names = split(list.substr(excludes ? 1 : 0), ", ");
    const bool named = std::find(names.begin(), names.end(), component) != names.end();
    return named != excludes;
}

}  // namespace gpushm::tools
