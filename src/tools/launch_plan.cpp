// SPDX-License-Identifier: BSD-3-Clause
#include "tools/launch_plan.hpp"

#include "openmpi/binding/first_rank.hpp"
#include "openmpi/settings/mca_defaults.hpp"
#include "openmpi/settings/settings.hpp"
#include "tools/user_settings.hpp"

namespace gpushm::tools {

namespace {

constexpr const char *kPreloadSeparators = ": ";  // ld.so(8): colons or spaces

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
    plan.changes.push_back(extend_path_list(environment, "LD_PRELOAD", files.preload(),
                                            kPreloadSeparators, facts.is_there, reason));
    if (!facts.preload_obstacle.empty()) {
        plan.notes.push_back("LD_PRELOAD has no effect on " + facts.command[0] +
                             " itself: " + facts.preload_obstacle);
    }
}

void add_plugin_path(const LaunchFacts &facts, const GpushmFiles &files, const std::string &reason,
                     Environment &environment, LaunchPlan &plan) {
    plan.changes.push_back(extend_path_list(environment, "UCX_PLUGIN_PATH", files.directory, ":",
                                            facts.is_there, reason));
}

/** Plans how UCX loads gpushm. False: gpushm does not serve the program's UCX. */
bool plan_loading(const LaunchFacts &facts, const GpushmFiles &files, Environment &environment,
                  LaunchPlan &plan) {
    const std::string obstacle = facts.ucx ? why_not_served(*facts.ucx) : std::string();
    if (!obstacle.empty()) {
        if (facts.links_ucx) {
            plan.warnings.push_back(obstacle + "; the program runs without gpushm");
            return false;
        }
        // A program that uses this UCX gets a message from gpushm.
        plan.notes.push_back(obstacle + "; only a program with another UCX gets gpushm");
    }
    const bool reads_plugin_path =
        facts.ucx && obstacle.empty() && loading_of(facts.ucx->version) == Loading::plugin_path;
    if (facts.links_ucx) {
        if (reads_plugin_path) {
            add_plugin_path(facts, files, "the program links " + describe(*facts.ucx), environment,
                            plan);
            if (facts.links_mpi) {
                add_preload(facts, files,
                            "Open MPI sends without UCX in jobs that UCX cannot serve (sessions)",
                            environment, plan);
            }
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
        add_plugin_path(facts, files, "the loader finds " + describe(*facts.ucx), environment,
                        plan);
    }
    return true;
}

void set_mca(const openmpi::McaDefault &parameter, const std::string &reason,
             const LaunchFacts &facts, Environment &environment, LaunchPlan &plan) {
    for (const char *name : {parameter.synonyms[0], parameter.synonyms[1], parameter.name}) {
        const auto setting =
            name != nullptr ? find_mca_parameter({environment, facts.command}, name) : std::nullopt;
        if (setting) {
            plan.changes.push_back({Change::Kind::kept, std::string("OMPI_MCA_") + name,
                                    setting->value, "it is " + setting->place});
            return;
        }
    }
    plan.changes.push_back(set_unless_present(
        environment, std::string("OMPI_MCA_") + parameter.name, parameter.value, reason));
}

/** Notes the parameters that a process of Open MPI may remove again
 * (openmpi/settings/mca_settings.hpp). */
void note_as_ours(Environment &environment, LaunchPlan &plan) {
    const std::string prefix = "OMPI_MCA_";
    const char *present = environment.find(openmpi::kSetByGpushm);
    std::string names = present != nullptr ? present : "";
    for (const Change &change : plan.changes) {
        if (change.kind == Change::Kind::set &&
            change.name.compare(0, prefix.size(), prefix) == 0) {
            names += (names.empty() ? "" : ",") + change.name.substr(prefix.size());
        }
    }
    environment.set(openmpi::kSetByGpushm, names);
    plan.changes.push_back({Change::Kind::set, openmpi::kSetByGpushm, names,
                            "a process that cannot send through UCX and gpushm takes these back"});
}

/** Whether the program may use Open MPI. */
bool uses_open_mpi(const LaunchFacts &facts) {
    return !facts.links_ucx || facts.links_mpi;
}

/** Whether gpushm will decide in the program which component of Open MPI serves a window
 * (openmpi/one_sided/window_selection.hpp). Otherwise the components are limited here. */
bool decides_for_windows(const LaunchFacts &facts, const Environment &environment) {
    const UserSettings user{environment, facts.command};
    const auto in_open_mpi = find_variable(user, "UCX_GPUSHM_OPENMPI");
    const auto pml = find_mca_parameter(user, "pml");
    return (!in_open_mpi || !openmpi::switches_off(in_open_mpi->value.c_str())) &&
           (!pml || mca_list_allows(pml->value, "ucx"));
}

void plan_windows(const LaunchFacts &facts, Environment &environment, LaunchPlan &plan) {
    const auto osc = find_mca_parameter({environment, facts.command}, openmpi::kOsc.name);
    if (!osc && decides_for_windows(facts, environment)) {
        return;
    }
    set_mca(openmpi::kOsc, "Open MPI's one-sided operations go through UCX, shared windows do not",
            facts, environment, plan);
    if (plan.changes.back().kind == Change::Kind::set) {
        set_mca(openmpi::kOscPriority, "osc/sm gets shared windows only", facts, environment, plan);
    } else if (!mca_list_allows(plan.changes.back().value, "ucx")) {
        plan.notes.push_back(
            "OMPI_MCA_osc=" + plan.changes.back().value +
            " keeps Open MPI's one-sided operations from UCX, those on GPU buffers do not work "
            "with it");
    }
}

/** Sets the parameters of openmpi/settings/mca_defaults.hpp, which has the reasons. */
void plan_open_mpi(const LaunchFacts &facts, Environment &environment, LaunchPlan &plan) {
    set_mca(openmpi::kPml, "Open MPI sends messages through UCX", facts, environment, plan);
    plan_windows(facts, environment, plan);
    set_mca(openmpi::kUcxTransports, "Open MPI accepts UCX whatever its transports are", facts,
            environment, plan);
    set_mca(openmpi::kUcxDevices, "Open MPI prefers UCX whatever its devices are", facts,
            environment, plan);
    note_as_ours(environment, plan);
}

/** Whether another rank of the job logs the warnings. */
bool is_later_rank(const Environment &environment) {
    return openmpi::is_later_rank([&](const char *name) { return environment.find(name); });
}

void report_other_mpi(const LaunchFacts &facts, const Environment &environment, LaunchPlan &plan) {
    (is_later_rank(environment) ? plan.notes : plan.warnings)
        .push_back("gpushm serves Open MPI, not " + facts.other_mpi +
                   ": the program runs without it; use Open MPI 4.1, 5.0 or 6.0");
}

void report(const Exclusion &exclusion, const Environment &environment, LaunchPlan &plan) {
    (exclusion.meant || is_later_rank(environment) ? plan.notes : plan.warnings)
        .push_back(exclusion.line);
}

/** Reports the user's settings that keep gpushm out. */
void report_exclusions(const LaunchFacts &facts, const Environment &environment, LaunchPlan &plan) {
    const UserSettings user{environment, facts.command};
    const bool ucx_has_cuda = facts.ucx && facts.ucx->own_cuda;
    for (const Exclusion &exclusion : excluding_ucx_settings(user, ucx_has_cuda)) {
        report(exclusion, environment, plan);
    }
    const auto modules = excluding_modules(user);
    if (modules && facts.links_ucx && loading_of(facts.ucx->version) == Loading::plugin_path) {
        report(*modules, environment, plan);
    }
    const auto pml = excluding_pml(user, ucx_has_cuda);
    if (pml && uses_open_mpi(facts)) {
        report(*pml, environment, plan);
    }
}

}  // namespace

LaunchPlan plan_launch(const LaunchFacts &facts, const GpushmFiles &files,
                       Environment &environment) {
    LaunchPlan plan;
    if (!facts.other_mpi.empty()) {
        report_other_mpi(facts, environment, plan);
        return plan;
    }
    LaunchFacts known = facts;
    if (!facts.command.empty() && is_mpirun(facts.command[0])) {
        // mpirun is linked to UCX if Open MPI has its components built in.
        known.links_ucx = false;
    }
    if (!plan_loading(known, files, environment, plan)) {
        return plan;
    }
    // If gpushm does not serve this UCX, the process itself finds out whether it uses another one.
    if (uses_open_mpi(known) && (!known.ucx || why_not_served(*known.ucx).empty())) {
        plan_open_mpi(known, environment, plan);
    }
    report_exclusions(known, environment, plan);
    return plan;
}

}  // namespace gpushm::tools
