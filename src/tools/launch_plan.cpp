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

/** Makes the plan and changes the environment accordingly. */
class Planner {
public:
    Planner(const LaunchFacts &facts, const GpushmFiles &files, Environment &environment)
        : facts_(facts), files_(files), environment_(environment) {
        // mpirun is linked to UCX if Open MPI has its components built in.
        if (!facts.command.empty() && is_mpirun(facts.command[0])) {
            facts_.links_ucx = false;
        }
    }

    LaunchPlan plan() {
        if (!facts_.other_mpi.empty()) {
            report_other_mpi();
            return plan_;
        }
        if (!plan_loading()) {
            return plan_;
        }
        // If gpushm does not serve this UCX, the process itself finds out whether it uses another
        // one.
        if (uses_open_mpi() && (!facts_.ucx || why_not_served(*facts_.ucx).empty())) {
            plan_open_mpi();
        }
        report_exclusions();
        return plan_;
    }

private:
    UserSettings user() const { return {environment_, facts_.command}; }

    void add_preload(const std::string &reason) {
        if (files_.preload().find_first_of(kPreloadSeparators) != std::string::npos) {
            plan_.warnings.push_back("LD_PRELOAD cannot name " + files_.preload() +
                                     ", which has a blank or a colon in its path: "
                                     "install gpushm elsewhere; the program runs without it");
            return;
        }
        plan_.changes.push_back(extend_path_list(environment_, "LD_PRELOAD", files_.preload(),
                                                 kPreloadSeparators, facts_.is_there, reason));
        if (!facts_.preload_obstacle.empty()) {
            plan_.notes.push_back("LD_PRELOAD has no effect on " + facts_.command[0] +
                                  " itself: " + facts_.preload_obstacle);
        }
    }

    void add_plugin_path(const std::string &reason) {
        plan_.changes.push_back(extend_path_list(environment_, "UCX_PLUGIN_PATH", files_.directory,
                                                 ":", facts_.is_there, reason));
    }

    /** Plans how UCX loads gpushm. False: gpushm does not serve the program's UCX. */
    bool plan_loading() {
        const std::string obstacle = facts_.ucx ? why_not_served(*facts_.ucx) : std::string();
        if (!obstacle.empty()) {
            if (facts_.links_ucx) {
                plan_.warnings.push_back(obstacle + "; the program runs without gpushm");
                return false;
            }
            // A program that uses this UCX gets a message from gpushm.
            plan_.notes.push_back(obstacle + "; only a program with another UCX gets gpushm");
        }
        const bool reads_plugin_path = facts_.ucx && obstacle.empty() &&
                                       loading_of(facts_.ucx->version) == Loading::plugin_path;
        if (facts_.links_ucx) {
            if (reads_plugin_path) {
                add_plugin_path("the program links " + describe(*facts_.ucx));
                if (facts_.links_mpi) {
                    add_preload(
                        "Open MPI sends without UCX in jobs that UCX cannot serve (sessions)");
                }
            } else {
                add_preload("the program links " + describe(*facts_.ucx) +
                            ", which loads no plugins by their path");
            }
            return true;
        }
        add_preload(facts_.ucx
                        ? "the program does not link UCX itself; it may start or load any UCX"
                        : "no UCX is found beforehand; the program may bring its own");
        if (reads_plugin_path) {
            add_plugin_path("the loader finds " + describe(*facts_.ucx));
        }
        return true;
    }

    void set_mca(const openmpi::McaDefault &parameter, const std::string &reason) {
        for (const char *name : {parameter.synonyms[0], parameter.synonyms[1], parameter.name}) {
            const auto setting = name != nullptr ? find_mca_parameter(user(), name) : std::nullopt;
            if (setting) {
                plan_.changes.push_back({Change::Kind::kept, std::string("OMPI_MCA_") + name,
                                         setting->value, "it is " + setting->place});
                return;
            }
        }
        plan_.changes.push_back(set_unless_present(
            environment_, std::string("OMPI_MCA_") + parameter.name, parameter.value, reason));
    }

    /** Notes the parameters that a process of Open MPI may remove again
     * (openmpi/settings/mca_settings.hpp). */
    void note_as_ours() {
        const std::string prefix = "OMPI_MCA_";
        const char *present = environment_.find(openmpi::kSetByGpushm);
        std::string names = present != nullptr ? present : "";
        for (const Change &change : plan_.changes) {
            if (change.kind == Change::Kind::set &&
                change.name.compare(0, prefix.size(), prefix) == 0) {
                names += (names.empty() ? "" : ",") + change.name.substr(prefix.size());
            }
        }
        environment_.set(openmpi::kSetByGpushm, names);
        plan_.changes.push_back(
            {Change::Kind::set, openmpi::kSetByGpushm, names,
             "a process that cannot send through UCX and gpushm takes these back"});
    }

    /** Whether the program may use Open MPI. */
    bool uses_open_mpi() const { return !facts_.links_ucx || facts_.links_mpi; }

    /** Whether gpushm will decide in the program which component of Open MPI serves a window
     * (openmpi/one_sided/window_selection.hpp). Otherwise the components are limited here. */
    bool decides_for_windows() const {
        const auto in_open_mpi = find_variable(user(), "UCX_GPUSHM_OPENMPI");
        const auto pml = find_mca_parameter(user(), "pml");
        return (!in_open_mpi || !openmpi::switches_off(in_open_mpi->value.c_str())) &&
               (!pml || mca_list_allows(pml->value, "ucx"));
    }

    void plan_windows() {
        const auto osc = find_mca_parameter(user(), openmpi::kOsc.name);
        if (!osc && decides_for_windows()) {
            return;
        }
        set_mca(openmpi::kOsc,
                "Open MPI's one-sided operations go through UCX, shared windows do not");
        if (plan_.changes.back().kind == Change::Kind::set) {
            set_mca(openmpi::kOscPriority, "osc/sm gets shared windows only");
        } else if (!mca_list_allows(plan_.changes.back().value, "ucx")) {
            plan_.notes.push_back(
                "OMPI_MCA_osc=" + plan_.changes.back().value +
                " keeps Open MPI's one-sided operations from UCX, those on GPU buffers do not work "
                "with it");
        }
    }

    /** Sets the parameters of openmpi/settings/mca_defaults.hpp, which has the reasons. */
    void plan_open_mpi() {
        set_mca(openmpi::kPml, "Open MPI sends messages through UCX");
        plan_windows();
        set_mca(openmpi::kUcxTransports, "Open MPI accepts UCX whatever its transports are");
        set_mca(openmpi::kUcxDevices, "Open MPI prefers UCX whatever its devices are");
        note_as_ours();
    }

    /** Whether another rank of the job logs the warnings. */
    bool is_later_rank() const {
        return openmpi::is_later_rank([this](const char *name) { return environment_.find(name); });
    }

    void report_other_mpi() {
        (is_later_rank() ? plan_.notes : plan_.warnings)
            .push_back("gpushm serves Open MPI, not " + facts_.other_mpi +
                       ": the program runs without it; use Open MPI 4.1, 5.0 or 6.0");
    }

    void report(const Exclusion &exclusion) {
        (exclusion.meant || is_later_rank() ? plan_.notes : plan_.warnings)
            .push_back(exclusion.line);
    }

    /** Reports the user's settings that keep gpushm out. */
    void report_exclusions() {
        const bool ucx_has_cuda = facts_.ucx && facts_.ucx->own_cuda;
        for (const Exclusion &exclusion : excluding_ucx_settings(user(), ucx_has_cuda)) {
            report(exclusion);
        }
        const auto modules = excluding_modules(user());
        if (modules && facts_.links_ucx &&
            loading_of(facts_.ucx->version) == Loading::plugin_path) {
            report(*modules);
        }
        const auto pml = excluding_pml(user(), ucx_has_cuda);
        if (pml && uses_open_mpi()) {
            report(*pml);
        }
    }

    LaunchFacts facts_;
    const GpushmFiles &files_;
    Environment &environment_;
    LaunchPlan plan_;
};

}  // namespace

LaunchPlan plan_launch(const LaunchFacts &facts, const GpushmFiles &files,
                       Environment &environment) {
    return Planner(facts, files, environment).plan();
}

}  // namespace gpushm::tools
