// SPDX-License-Identifier: BSD-3-Clause
// How the tools read the output of other programs, and which UCX releases they know.
#include "tools/gpushm_files.hpp"
#include "tools/linked_libraries.hpp"
#include "tools/openmpi_installation.hpp"
#include "tools/ucx_installation.hpp"
#include "tools/version.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <string>

namespace gpushm::tools {
namespace {

std::string parsed(const std::string &text) {
    const auto version = parse_version(text);
    return version ? to_string(*version) : "none";
}

TEST(ToolsVersion, is_found_in_a_banner) {
    EXPECT_EQ(parsed("mpirun (Open MPI) 4.1.4\n"), "4.1.4");
    EXPECT_EQ(parsed("mpirun (Open MPI) 6.0.0rc2"), "6.0.0");
    EXPECT_EQ(parsed("1.14.1.post2"), "1.14.1");
    EXPECT_EQ(parsed("2 of 5.1"), "5.1.0");
    EXPECT_EQ(parsed("123"), "none");
    EXPECT_EQ(parsed(""), "none");
}

TEST(ToolsVersion, is_compared_as_numbers) {
    EXPECT_TRUE(older_than({1, 9, 9}, 1, 13));
    EXPECT_FALSE(older_than({1, 13, 0}, 1, 13));
    EXPECT_FALSE(older_than({2, 0, 0}, 1, 13));
    EXPECT_TRUE(older_than({0, 99, 0}, 1, 13));
}

TEST(ToolsUcx, loads_plugins_by_path_from_1_22_on) {
    EXPECT_EQ(loading_of({1, 13, 1}), Loading::preload);
    EXPECT_EQ(loading_of({1, 21, 9}), Loading::preload);
    EXPECT_EQ(loading_of({1, 22, 0}), Loading::plugin_path);
    EXPECT_EQ(loading_of({2, 0, 0}), Loading::plugin_path);
}

TEST(ToolsUcx, every_release_with_a_layout_is_served_and_no_other) {
    UcxInstallation ucx;
    for (unsigned minor = 13; minor <= 23; ++minor) {
        ucx.version = {1, minor, 0};
        EXPECT_EQ(why_not_served(ucx), "") << minor;
    }
    ucx.version = {1, 12, 1};
    EXPECT_NE(why_not_served(ucx).find("too old"), std::string::npos);
    ucx.version = {1, 24, 0};
    EXPECT_NE(why_not_served(ucx).find("newer gpushm"), std::string::npos);
    ucx.version = {2, 13, 0};
    EXPECT_NE(why_not_served(ucx).find("newer gpushm"), std::string::npos);
    EXPECT_EQ(abi::served_versions(), "1.13 to 1.23");
}

TEST(ToolsLoaderTrace, names_and_paths_are_read) {
    const auto libraries = parse_loader_trace(
        "\tlinux-vdso.so.1 (0x00007ffd1)\n"
        "\t/opt/libpre.so (0x00007f1)\n"
        "\tlibucp.so.0 => /my libs/(a)/libucp.so.0 (0x00007f2)\n"
        "\tlibucs.so.0 => not found\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f3)\n");
    ASSERT_EQ(libraries.size(), 2u);
    EXPECT_EQ(libraries[0].name, "libucp.so.0");
    EXPECT_EQ(libraries[0].path, "/my libs/(a)/libucp.so.0");
    EXPECT_EQ(libraries[1].name, "libucs.so.0");
    EXPECT_EQ(libraries[1].path, "");
    EXPECT_TRUE(parse_loader_trace("\tstatically linked\n").empty());
}

TEST(ToolsProgramFile, this_test_links_the_cplusplus_library_and_a_script_links_nothing) {
    const ProgramFile self = inspect_program(std::filesystem::read_symlink("/proc/self/exe"));
    EXPECT_TRUE(self.is_elf && self.same_machine);
    ASSERT_NE(self.find_library("libstdc++.so"), nullptr);
    EXPECT_NE(self.find_library("libstdc++.so")->path, "");
    EXPECT_EQ(self.find_library("libucp.so.0"), nullptr);
    EXPECT_FALSE(inspect_program("/etc/passwd").is_elf);
    EXPECT_TRUE(inspect_program("/nowhere").libraries.empty());
}

TEST(ToolsProgramFile, programs_are_searched_as_execvp_does) {
    EXPECT_EQ(find_program("sh", "/nowhere:/bin"), "/bin/sh");
    EXPECT_EQ(find_program("/bin/sh", ""), "/bin/sh");
    EXPECT_EQ(find_program("sh", "/nowhere"), std::nullopt);
    EXPECT_EQ(find_program("passwd", "/etc"), std::nullopt) << "not executable";
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path("/bin");
    for (const char *path : {"", ":/nowhere", "/nowhere::/nowhere", "/nowhere:"}) {
        EXPECT_EQ(find_program("sh", path), "./sh") << path;
    }
    std::filesystem::current_path(before);
}

TEST(ToolsOpenMpi, ompi_info_values_are_found_by_their_whole_key) {
    const std::string text =
        "path:libdirx:/wrong\npath:libdir:/usr/lib\npath:sysconfdir:\"/etc/x\"\n";
    EXPECT_EQ(ompi_info_value(text, "path:libdir"), "/usr/lib");
    EXPECT_EQ(ompi_info_value(text, "path:sysconfdir"), "/etc/x");
    EXPECT_EQ(ompi_info_value(text, "path:prefix"), "");
}

TEST(ToolsOpenMpi, the_last_value_in_a_parameter_file_counts) {
    const std::string text =
        "# pml = cm\nmtl = ^ofi\npml=ob1\n  pml = ^ucx   # not here\nxpml = y\n";
    EXPECT_EQ(mca_file_value(text, "pml"), "^ucx");
    EXPECT_EQ(mca_file_value(text, "osc"), std::nullopt);
}

TEST(ToolsOpenMpi, another_mpi_is_known_by_its_library_or_its_launcher) {
    ProgramFile program;
    program.path = "/nowhere/program";
    program.libraries = {{"libucp.so.0", "/usr/lib/libucp.so.0"},
                         {"libmpi.so.40", "/usr/lib/libmpi.so.40"}};
    EXPECT_EQ(other_mpi_of(program), "");
    program.libraries[1] = {"libmpich.so.12", "/usr/lib/libmpich.so.12"};
    EXPECT_NE(other_mpi_of(program).find("libmpich.so.12"), std::string::npos);
    program.libraries[1] = {"libmpi.so.12", "/opt/lib/libmpi.so.12"};
    EXPECT_NE(other_mpi_of(program).find("libmpi.so.12"), std::string::npos);
    program.libraries.clear();
    program.path = "/nowhere/mpirun";
    EXPECT_EQ(other_mpi_of(program), "");
    program.path = "/nowhere/mpiexec.hydra";
    EXPECT_NE(other_mpi_of(program).find("/nowhere/mpiexec.hydra"), std::string::npos);
}

class ToolsGpushmFiles : public testing::Test {
protected:
    ToolsGpushmFiles() {
        std::filesystem::create_directories(root_ / "bin");
        std::filesystem::create_directories(beside_);
        std::filesystem::create_directories(chosen_);
        for (const char *name : {kPluginName, kPreloadName}) {
            std::filesystem::create_symlink("/dev/null", chosen_ / name);
        }
    }
    ~ToolsGpushmFiles() override { std::filesystem::remove_all(root_); }

    GpushmFiles find() const { return find_gpushm_files({}, root_ / "bin"); }

    const std::filesystem::path root_ =
        testing::TempDir() + "gpushm_files." + std::to_string(getpid());
    const std::filesystem::path beside_ = root_ / "lib" / "gpushm";
    const std::filesystem::path chosen_ = root_ / "lib" / "x86_64-linux-gnu" / "gpushm";
};

TEST_F(ToolsGpushmFiles, folders_without_any_of_them_are_passed_over) {
    EXPECT_EQ(find().directory, chosen_);
}

TEST_F(ToolsGpushmFiles, a_library_that_cannot_be_read_is_no_reason_to_take_another_installation) {
    std::filesystem::create_symlink("/dev/null", beside_ / kPreloadName);
    std::filesystem::create_symlink(
        kPluginName, beside_ / kPluginName);  // a link to itself, which not even root can read
    EXPECT_EQ(find().directory, "");
    EXPECT_NE(
        missing_files_message(find()).find((beside_ / kPluginName).string() + ": Too many levels"),
        std::string::npos)
        << missing_files_message(find());
    EXPECT_EQ(find_gpushm_files(chosen_, root_ / "bin").directory, chosen_);
}

TEST_F(ToolsGpushmFiles, nor_is_one_that_is_missing) {
    std::filesystem::create_symlink("/dev/null", beside_ / kPluginName);
    EXPECT_EQ(find().directory, "");
    EXPECT_NE(
        missing_files_message(find()).find((beside_ / kPreloadName).string() + ": No such file"),
        std::string::npos)
        << missing_files_message(find());
}

TEST_F(ToolsGpushmFiles, a_folder_counts_by_its_plugin) {
    EXPECT_TRUE(holds_gpushm(chosen_));
    EXPECT_TRUE(holds_gpushm(chosen_ / kPreloadName));
    EXPECT_FALSE(holds_gpushm(beside_));
    EXPECT_FALSE(holds_gpushm(beside_ / kPreloadName));
}

TEST(ToolsOpenMpi, the_component_is_enabled_in_the_first_folder_that_has_it) {
    const std::filesystem::path root =
        testing::TempDir() + "gpushm_components." + std::to_string(getpid());
    const std::string own = root / "own";
    const std::string system = root / "system";
    std::filesystem::create_directories(own);
    std::filesystem::create_directories(system);
    EXPECT_EQ(find_enabled_component({own, system, "/nowhere", ""}), "");
    std::filesystem::create_symlink("/dev/null", system + "/mca_hook_gpushm.so");
    std::filesystem::create_symlink("/nowhere", own + "/mca_hook_gpushm.so");
    EXPECT_EQ(find_enabled_component({own, system}), system) << "the other link leads nowhere";
    std::filesystem::remove(own + "/mca_hook_gpushm.so");
    std::filesystem::create_symlink("/dev/null", own + "/mca_hook_gpushm.so");
    EXPECT_EQ(find_enabled_component({own, system}), own);
    std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace gpushm::tools
