// SPDX-License-Identifier: BSD-3-Clause
// Which variables gpushm-run sets for which program and which UCX.
#include "tools/launch_plan.hpp"

#include <gtest/gtest.h>

namespace gpushm::tools {
namespace {

constexpr const char *kPreload = "/opt/lib/gpushm/libgpushm_preload.so";
constexpr const char *kDirectory = "/opt/lib/gpushm";

UcxInstallation ucx_of(unsigned minor) {
    UcxInstallation ucx;
    ucx.libucp_path = "/usr/lib/libucp.so.0";
    ucx.version = {1, minor, 4};
    return ucx;
}

class ToolsLaunchPlan : public testing::Test {
protected:
    ToolsLaunchPlan() {
        files_.directory = kDirectory;
        facts_.command = {"program"};
        facts_.is_there = [](const std::string &path) {
            return path.find("/gone/") == std::string::npos;
        };
    }

    LaunchPlan plan(std::vector<const char *> entries = {}) {
        entries.push_back(nullptr);
        environment_ = Environment(entries.data());
        return plan_launch(facts_, files_, environment_);
    }

    std::string value(const std::string &name) const {
        const char *present = environment_.find(name);
        return present != nullptr ? present : "(unset)";
    }

    static bool mentions(const std::vector<std::string> &lines, const std::string &words) {
        for (const std::string &line : lines) {
            if (line.find(words) != std::string::npos) {
                return true;
            }
        }
        return false;
    }

    LaunchFacts facts_;
    GpushmFiles files_;
    Environment environment_{std::vector<const char *>{nullptr}.data()};
};

TEST_F(ToolsLaunchPlan, linked_ucx_before_1_22_gets_the_preload_library_alone) {
    facts_.links_ucx = true;
    for (unsigned minor : {13u, 16u, 21u}) {
        facts_.ucx = ucx_of(minor);
        EXPECT_TRUE(plan().warnings.empty());
        EXPECT_EQ(environment_.entries(),
                  std::vector<std::string>{std::string("LD_PRELOAD=") + kPreload});
    }
}

TEST_F(ToolsLaunchPlan, linked_ucx_from_1_22_gets_the_plugin_path_alone) {
    facts_.links_ucx = true;
    for (unsigned minor : {22u, 23u}) {
        facts_.ucx = ucx_of(minor);
        EXPECT_TRUE(plan().warnings.empty());
        EXPECT_EQ(environment_.entries(),
                  std::vector<std::string>{std::string("UCX_PLUGIN_PATH=") + kDirectory});
    }
}

TEST_F(ToolsLaunchPlan, an_mpirun_that_links_ucx_itself_starts_programs_with_any) {
    facts_.command = {"/usr/bin/mpirun", "-n", "2", "./program"};
    facts_.links_ucx = true;
    facts_.ucx = ucx_of(22);
    plan();
    EXPECT_EQ(value("LD_PRELOAD"), kPreload);
    EXPECT_EQ(value("OMPI_MCA_pml"), "ucx");
}

TEST_F(ToolsLaunchPlan, a_program_that_may_bring_any_ucx_gets_the_preload_library) {
    plan();
    EXPECT_EQ(value("LD_PRELOAD"), kPreload);
    EXPECT_EQ(value("UCX_PLUGIN_PATH"), "(unset)");
    facts_.ucx = ucx_of(18);
    plan();
    EXPECT_EQ(value("LD_PRELOAD"), kPreload);
    EXPECT_EQ(value("UCX_PLUGIN_PATH"), "(unset)");
    facts_.ucx = ucx_of(22);
    plan();
    EXPECT_EQ(value("LD_PRELOAD"), kPreload);
    EXPECT_EQ(value("UCX_PLUGIN_PATH"), kDirectory);
}

TEST_F(ToolsLaunchPlan, a_program_on_a_ucx_that_is_not_served_is_left_alone) {
    facts_.links_ucx = true;
    facts_.links_mpi = true;
    for (unsigned minor : {12u, 99u}) {
        facts_.ucx = ucx_of(minor);
        const LaunchPlan made = plan();
        ASSERT_EQ(made.warnings.size(), 1u);
        EXPECT_NE(made.warnings[0].find("1." + std::to_string(minor) + ".4"), std::string::npos);
        EXPECT_TRUE(environment_.entries().empty());
    }
    facts_.ucx = ucx_of(16);
    facts_.ucx->statistics = true;
    EXPECT_TRUE(mentions(plan().warnings, "statistics"));
    EXPECT_TRUE(environment_.entries().empty());
}

TEST_F(ToolsLaunchPlan, an_unserved_default_ucx_does_not_hinder_a_program_with_its_own) {
    facts_.ucx = ucx_of(99);
    const LaunchPlan made = plan();
    EXPECT_TRUE(made.warnings.empty()) << "a program that uses it says so";
    EXPECT_TRUE(mentions(made.notes, "1.99.4"));
    EXPECT_EQ(value("LD_PRELOAD"), kPreload);
    EXPECT_EQ(value("UCX_PLUGIN_PATH"), "(unset)");
    EXPECT_EQ(value("OMPI_MCA_pml"), "(unset)") << "the job would end";
}

TEST_F(ToolsLaunchPlan, processes_are_told_which_parameters_they_may_take_back) {
    plan();
    EXPECT_EQ(value("OMPI_MCA_gpushm_defaults"), "pml,opal_common_ucx_tls,opal_common_ucx_devices");
    const LaunchPlan made =
        plan({"OMPI_MCA_pml=ucx", "OMPI_MCA_osc=ucx", "OMPI_MCA_gpushm_defaults=pml"});
    EXPECT_EQ(value("OMPI_MCA_gpushm_defaults"), "pml,opal_common_ucx_tls,opal_common_ucx_devices");
    EXPECT_EQ(made.changes.back().name, "OMPI_MCA_gpushm_defaults") << "for --print";
}

TEST_F(ToolsLaunchPlan, a_program_of_open_mpi_gets_the_preload_library_beside_the_plugin_path) {
    facts_.links_ucx = true;
    facts_.links_mpi = true;
    facts_.ucx = ucx_of(22);
    plan();
    EXPECT_EQ(value("LD_PRELOAD"), kPreload);
    EXPECT_EQ(value("UCX_PLUGIN_PATH"), kDirectory);
}

TEST_F(ToolsLaunchPlan, open_mpi_is_set_up_unless_the_program_is_known_not_to_use_mpi) {
    plan();
    EXPECT_EQ(value("OMPI_MCA_pml"), "ucx");
    EXPECT_EQ(value("OMPI_MCA_osc"), "(unset)");
    EXPECT_EQ(value("OMPI_MCA_osc_ucx_priority"), "(unset)");
    EXPECT_EQ(value("OMPI_MCA_opal_common_ucx_tls"), "any");
    EXPECT_EQ(value("OMPI_MCA_opal_common_ucx_devices"), "any");
    facts_.links_ucx = true;
    facts_.ucx = ucx_of(16);
    plan();
    EXPECT_EQ(value("OMPI_MCA_pml"), "(unset)");
    facts_.links_mpi = true;
    plan();
    EXPECT_EQ(value("OMPI_MCA_pml"), "ucx");
}

TEST_F(ToolsLaunchPlan, all_windows_go_to_ucx_where_gpushm_does_not_choose_for_each) {
    plan({"UCX_GPUSHM_OPENMPI=n"});
    EXPECT_EQ(value("OMPI_MCA_osc"), "ucx,sm");
    EXPECT_EQ(value("OMPI_MCA_osc_ucx_priority"), "200");
}

TEST_F(ToolsLaunchPlan, nothing_that_the_user_set_changes) {
    const std::vector<const char *> entries = {"OMPI_MCA_pml=ob1", "OMPI_MCA_osc=rdma",
                                               "OMPI_MCA_pml_ucx_tls=posix",
                                               "OMPI_MCA_osc_ucx_devices=mlx5_0"};
    const LaunchPlan made = plan(entries);
    EXPECT_EQ(value("OMPI_MCA_pml"), "ob1");
    EXPECT_EQ(value("OMPI_MCA_osc"), "rdma");
    EXPECT_EQ(value("OMPI_MCA_osc_ucx_priority"), "(unset)");
    EXPECT_EQ(value("OMPI_MCA_pml_ucx_tls"), "posix");
    EXPECT_EQ(value("OMPI_MCA_opal_common_ucx_tls"), "(unset)") << "a synonym of pml_ucx_tls";
    EXPECT_EQ(value("OMPI_MCA_opal_common_ucx_devices"), "(unset)");
    EXPECT_TRUE(mentions(made.warnings, "OMPI_MCA_pml=ob1"));
    EXPECT_TRUE(mentions(made.notes, "OMPI_MCA_osc=rdma"));
}

TEST_F(ToolsLaunchPlan, a_command_line_of_mpirun_wins_over_the_environment) {
    facts_.command = {"/usr/bin/mpirun", "-np", "2", "--mca", "pml", "ob1", "./app"};
    const LaunchPlan made = plan();
    EXPECT_EQ(value("OMPI_MCA_pml"), "(unset)");
    EXPECT_EQ(value("OMPI_MCA_osc"), "ucx,sm");
    EXPECT_TRUE(mentions(made.warnings, "--mca pml ob1 in the command line"));
    EXPECT_TRUE(mentions(made.warnings, "GPU buffers do not work with it"));
    facts_.command = {"mpirun", "-x", "OMPI_MCA_pml=ob1", "./app"};
    EXPECT_TRUE(mentions(plan().warnings, "-x OMPI_MCA_pml=ob1 in the command line"));
    EXPECT_EQ(value("OMPI_MCA_pml"), "(unset)");
}

TEST_F(ToolsLaunchPlan, settings_that_keep_gpushm_out_are_warned_of) {
    EXPECT_TRUE(
        mentions(plan({"UCX_TLS=posix,self"}).warnings, "UCX_TLS=posix,self in the environment"));
    EXPECT_TRUE(mentions(plan({"UCX_SHM_DEVICES=memory"}).warnings, "UCX_SHM_DEVICES=memory"));
    facts_.command = {"mpirun", "-x", "UCX_TLS=sm,self", "./app"};
    EXPECT_TRUE(
        mentions(plan({"UCX_TLS=gpushm"}).warnings, "-x UCX_TLS=sm,self in the command line"));
    facts_.command = {"mpirun", "-x", "UCX_TLS=gpushm,self", "./app"};
    EXPECT_TRUE(plan({"UCX_TLS=sm"}).warnings.empty());
}

TEST_F(ToolsLaunchPlan, harmless_settings_are_passed_over_in_silence) {
    for (const char *harmless :
         {"UCX_TLS=all", "UCX_TLS=posix,gpushm", "UCX_TLS=^tcp", "UCX_NET_DEVICES=mlx5_0:1",
          "UCX_SHM_DEVICES=gpucopy,gpushm", "OMPI_MCA_pml=ucx"}) {
        const LaunchPlan made = plan({harmless});
        EXPECT_TRUE(made.warnings.empty() && made.notes.empty()) << harmless;
    }
}

TEST_F(ToolsLaunchPlan, what_is_clearly_meant_is_a_note_only) {
    const LaunchPlan excluded = plan({"UCX_TLS=^gpushm"});
    EXPECT_TRUE(mentions(excluded.notes, "take gpushm out of it"));
    EXPECT_TRUE(excluded.warnings.empty());
    const LaunchPlan switched_off = plan({"OMPI_MCA_pml=ob1", "UCX_GPUSHM_OPENMPI=n"});
    EXPECT_TRUE(mentions(switched_off.notes, "OMPI_MCA_pml=ob1"));
    EXPECT_TRUE(switched_off.warnings.empty());
    EXPECT_FALSE(plan({"OMPI_MCA_pml=ob1", "UCX_GPUSHM_OPENMPI=y"}).warnings.empty());
    facts_.command = {"mpirun", "--mca", "pml", "ob1", "-x", "UCX_GPUSHM_OPENMPI=no", "./app"};
    EXPECT_TRUE(plan().warnings.empty());
}

TEST_F(ToolsLaunchPlan, of_many_ranks_one_warns) {
    for (const char *rank : {"OMPI_COMM_WORLD_RANK=1", "PMIX_RANK=7", "SLURM_PROCID=2"}) {
        const LaunchPlan made = plan({"UCX_TLS=sm", rank});
        EXPECT_TRUE(made.warnings.empty()) << rank;
        EXPECT_TRUE(mentions(made.notes, "UCX_TLS=sm")) << rank;
    }
    EXPECT_FALSE(plan({"UCX_TLS=sm", "OMPI_COMM_WORLD_RANK=0", "PMIX_RANK=0"}).warnings.empty());
}

TEST_F(ToolsLaunchPlan, another_mpi_is_left_alone_and_told_once) {
    facts_.other_mpi = "MPICH (libmpich.so.12)";
    const LaunchPlan made = plan();
    EXPECT_TRUE(mentions(made.warnings, "not MPICH (libmpich.so.12)"));
    EXPECT_TRUE(environment_.entries().empty());
    EXPECT_TRUE(plan({"PMI_RANK=1"}).warnings.empty());
    EXPECT_FALSE(plan({"PMI_RANK=0"}).warnings.empty());
}

TEST_F(ToolsLaunchPlan, entries_that_name_nothing_do_not_keep_gpushm_out) {
    facts_.ucx = ucx_of(22);
    plan({"LD_PRELOAD=/gone/lib/gpushm/libgpushm_preload.so",
          "UCX_PLUGIN_PATH=/gone/lib/gpushm:/mine"});
    EXPECT_EQ(value("LD_PRELOAD"), kPreload);
    EXPECT_EQ(value("UCX_PLUGIN_PATH"), std::string("/mine:") + kDirectory);
}

TEST_F(ToolsLaunchPlan, modules_matter_only_where_ucx_loads_gpushm_as_one) {
    facts_.links_ucx = true;
    facts_.ucx = ucx_of(22);
    EXPECT_TRUE(mentions(plan({"UCX_MODULES=cma"}).warnings, "UCX_MODULES=cma"));
    EXPECT_TRUE(plan({"UCX_MODULES=gpu*"}).warnings.empty());
    facts_.ucx = ucx_of(16);
    const LaunchPlan preloaded = plan({"UCX_MODULES=cma"});
    EXPECT_TRUE(preloaded.warnings.empty() && preloaded.notes.empty());
}

TEST_F(ToolsLaunchPlan, open_mpi_is_not_mentioned_for_a_program_that_does_not_use_it) {
    facts_.links_ucx = true;
    facts_.ucx = ucx_of(16);
    EXPECT_TRUE(plan({"OMPI_MCA_pml=ob1"}).warnings.empty());
}

TEST_F(ToolsLaunchPlan, a_ucx_with_cuda_of_its_own_still_has_gpu_buffers) {
    facts_.ucx = ucx_of(16);
    facts_.ucx->own_cuda = true;
    const LaunchPlan made = plan({"UCX_TLS=sm,cuda"});
    EXPECT_TRUE(mentions(made.warnings, "GPU buffers do not go through gpushm"));
    EXPECT_FALSE(mentions(made.warnings, "do not work"));
}

TEST_F(ToolsLaunchPlan, a_path_that_ld_preload_cannot_hold_is_refused) {
    files_.directory = "/home/my name/lib/gpushm";
    EXPECT_TRUE(mentions(plan().warnings, "blank"));
    EXPECT_EQ(value("LD_PRELOAD"), "(unset)");
}

TEST_F(ToolsLaunchPlan, an_obstacle_to_preloading_is_noted_but_children_still_get_it) {
    facts_.preload_obstacle = "it is statically linked";
    EXPECT_TRUE(mentions(plan().notes, "statically linked"));
    EXPECT_EQ(value("LD_PRELOAD"), kPreload);
}

}  // namespace
}  // namespace gpushm::tools
