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
    EXPECT_EQ(plan().warnings.size(), 1u);
    EXPECT_EQ(value("LD_PRELOAD"), kPreload);
    EXPECT_EQ(value("UCX_PLUGIN_PATH"), "(unset)");
}

TEST_F(ToolsLaunchPlan, open_mpi_is_set_up_unless_the_program_is_known_not_to_use_mpi) {
    plan();
    EXPECT_EQ(value("OMPI_MCA_pml"), "ucx");
    EXPECT_EQ(value("OMPI_MCA_osc"), "ucx,sm");
    EXPECT_EQ(value("OMPI_MCA_osc_ucx_priority"), "200");
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
    EXPECT_TRUE(mentions(made.notes, "pml is \"ob1\""));
    EXPECT_TRUE(mentions(made.notes, "osc is \"rdma\""));
}

TEST_F(ToolsLaunchPlan, a_command_line_of_mpirun_wins_over_the_environment) {
    facts_.command = {"/usr/bin/mpirun", "-np", "2", "--mca", "pml", "ob1", "./app"};
    const LaunchPlan made = plan();
    EXPECT_EQ(value("OMPI_MCA_pml"), "(unset)");
    EXPECT_EQ(value("OMPI_MCA_osc"), "ucx,sm");
    EXPECT_TRUE(mentions(made.notes, "GPU buffers do not work"));
}

TEST_F(ToolsLaunchPlan, settings_that_keep_gpushm_out_are_named) {
    EXPECT_TRUE(mentions(plan({"UCX_TLS=posix,self"}).notes, "UCX_TLS=posix,self"));
    EXPECT_TRUE(mentions(plan({"UCX_TLS=^gpushm"}).notes, "UCX_TLS"));
    EXPECT_TRUE(mentions(plan({"UCX_MODULES=cma"}).notes, "UCX_MODULES=cma"));
    for (const char *harmless : {"UCX_TLS=all", "UCX_TLS=posix,gpushm", "UCX_TLS=^tcp"}) {
        EXPECT_TRUE(plan({harmless}).notes.empty()) << harmless;
    }
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

TEST(ToolsMcaArgument, the_last_one_of_mpirun_counts_in_every_spelling) {
    EXPECT_EQ(mca_argument({"mpiexec", "-mca", "pml", "cm", "--mca", "pml", "ucx", "a"}, "pml"),
              "ucx");
    EXPECT_EQ(mca_argument({"prterun", "--omca", "pml", "ob1", "a"}, "pml"), "ob1");
    EXPECT_EQ(mca_argument({"mpirun", "--gmca", "pml", "ob1", "a"}, "pml"), "ob1");
    EXPECT_EQ(mca_argument({"mpirun", "--mca", "osc", "pml", "a"}, "pml"), std::nullopt);
    EXPECT_EQ(mca_argument({"mpirun", "mca", "pml", "ob1"}, "pml"), std::nullopt);
    EXPECT_EQ(mca_argument({"mpirun", "--mca", "pml"}, "pml"), std::nullopt);
    EXPECT_EQ(mca_argument({"python", "--mca", "pml", "ob1"}, "pml"), std::nullopt);
    EXPECT_EQ(mca_argument({}, "pml"), std::nullopt);
}

TEST(ToolsMcaList, a_caret_excludes) {
    EXPECT_TRUE(mca_list_allows("ucx", "ucx"));
    EXPECT_TRUE(mca_list_allows("ob1,ucx", "ucx"));
    EXPECT_FALSE(mca_list_allows("ob1", "ucx"));
    EXPECT_FALSE(mca_list_allows("^ofi,ucx", "ucx"));
    EXPECT_TRUE(mca_list_allows("^ofi", "ucx"));
    EXPECT_FALSE(mca_list_allows("ucx2", "ucx"));
}

}  // namespace
}  // namespace gpushm::tools
