// SPDX-License-Identifier: BSD-3-Clause
// The user's settings, and how lists of UCX and Open MPI are read.
#include "tools/user_settings.hpp"

#include <gtest/gtest.h>

namespace gpushm::tools {
namespace {

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
    EXPECT_TRUE(mca_list_allows("", "ucx"));
}

TEST(ToolsExportArgument, is_read_in_the_command_line_of_mpirun_only) {
    EXPECT_EQ(export_argument({"mpirun", "-x", "A=1", "-x", "A=2", "-x", "B", "./app"}, "A"), "2");
    EXPECT_EQ(export_argument({"mpirun", "--x", "A=", "./app"}, "A"), "");
    EXPECT_EQ(export_argument({"mpirun", "-x", "A", "./app"}, "A"), std::nullopt)
        << "the environment's value";
    EXPECT_EQ(export_argument({"mpirun", "-x", "AB=1", "./app"}, "A"), std::nullopt);
    EXPECT_EQ(export_argument({"mpirun", "-x"}, "A"), std::nullopt);
    EXPECT_EQ(export_argument({"env", "-x", "A=1"}, "A"), std::nullopt);
}

TEST(ToolsUcxList, a_caret_excludes_and_all_is_everything) {
    EXPECT_TRUE(ucx_list_allows("sm,gpushm", "gpushm"));
    EXPECT_TRUE(ucx_list_allows("all", "gpushm"));
    EXPECT_TRUE(ucx_list_allows("^sm", "gpushm"));
    EXPECT_TRUE(ucx_list_allows("\\gpushm", "gpushm")) << "UCX's mark of a name that is no alias";
    EXPECT_TRUE(ucx_list_allows("gpu*", "gpushm"));
    EXPECT_FALSE(ucx_list_allows("^sm,gpushm", "gpushm"));
    EXPECT_FALSE(ucx_list_allows("sm", "gpushm"));
    EXPECT_FALSE(ucx_list_allows("gpushm2", "gpushm"));
    EXPECT_FALSE(ucx_list_allows("", "gpushm"));
}

std::string devices_line(const std::string &devices) {
    const std::string entry = "UCX_SHM_DEVICES=" + devices;
    const char *const entries[] = {entry.c_str(), nullptr};
    const auto exclusions = excluding_ucx_settings({Environment(entries), {}}, false);
    return exclusions.empty() ? std::string() : exclusions[0].line;
}

TEST(ToolsExclusions, both_devices_of_gpushm_are_needed) {
    EXPECT_EQ(devices_line("all"), "");
    EXPECT_EQ(devices_line("gpushm,gpucopy,memory"), "");
    EXPECT_NE(devices_line("memory").find("add gpushm,gpucopy to it"), std::string::npos);
    EXPECT_NE(devices_line("gpushm").find("add gpucopy to it"), std::string::npos);
    EXPECT_NE(devices_line("^gpucopy").find("take gpucopy out of it"), std::string::npos);
}

}  // namespace
}  // namespace gpushm::tools
