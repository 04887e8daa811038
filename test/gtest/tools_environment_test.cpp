// SPDX-License-Identifier: BSD-3-Clause
// The environment of the program to start: never overridden, extended once.
#include "tools/environment.hpp"

#include <gtest/gtest.h>

namespace gpushm::tools {
namespace {

Environment environment_of(std::vector<const char *> entries) {
    entries.push_back(nullptr);
    return Environment(entries.data());
}

TEST(ToolsEnvironment, a_name_is_not_found_by_its_prefix_or_its_value) {
    const Environment environment = environment_of({"PATHS=a", "X=PATH=b", "PATH=c", "EMPTY="});
    EXPECT_STREQ(environment.find("PATH"), "c");
    EXPECT_STREQ(environment.find("EMPTY"), "");
    EXPECT_EQ(environment.find("PAT"), nullptr);
}

TEST(ToolsEnvironment, a_variable_of_the_user_stays_even_when_empty) {
    Environment environment = environment_of({"A=user", "B="});
    EXPECT_EQ(set_unless_present(environment, "A", "ours", "").kind, Change::Kind::kept);
    EXPECT_EQ(set_unless_present(environment, "B", "ours", "").kind, Change::Kind::kept);
    EXPECT_EQ(set_unless_present(environment, "C", "ours", "").kind, Change::Kind::set);
    EXPECT_EQ(environment.entries(), (std::vector<std::string>{"A=user", "B=", "C=ours"}));
}

TEST(ToolsEnvironment, a_list_keeps_the_users_elements_first) {
    Environment environment = environment_of({"LD_PRELOAD=libasan.so /x/liby.so", "OTHER=1"});
    const Change change =
        extend_path_list(environment, "LD_PRELOAD", "/g/libgpushm_preload.so", ": ", "why");
    EXPECT_EQ(change.kind, Change::Kind::extended);
    EXPECT_EQ(change.reason, "why");
    EXPECT_STREQ(environment.find("LD_PRELOAD"), "libasan.so /x/liby.so:/g/libgpushm_preload.so");
    EXPECT_STREQ(environment.find("OTHER"), "1");
}

TEST(ToolsEnvironment, an_empty_list_gets_no_empty_element) {
    Environment environment = environment_of({"UCX_PLUGIN_PATH="});
    EXPECT_EQ(extend_path_list(environment, "UCX_PLUGIN_PATH", "/g/gpushm", ":", "").kind,
              Change::Kind::set);
    EXPECT_STREQ(environment.find("UCX_PLUGIN_PATH"), "/g/gpushm");
}

TEST(ToolsEnvironment, a_list_that_has_gpushm_from_another_place_stays) {
    for (const char *entry : {"L=/old/gpushm/", "L=a:/old/gpushm:b", "L=gpushm"}) {
        Environment environment = environment_of({entry});
        EXPECT_EQ(extend_path_list(environment, "L", "/new/gpushm", ":", "").kind,
                  Change::Kind::kept)
            << entry;
        EXPECT_EQ(environment.entries(), std::vector<std::string>{entry});
    }
    Environment similar = environment_of({"L=/old/gpushm2:/gpushm/other"});
    EXPECT_EQ(extend_path_list(similar, "L", "/new/gpushm", ":", "").kind, Change::Kind::extended);
}

TEST(ToolsEnvironment, split_drops_empty_elements) {
    EXPECT_EQ(split("::a: b::", ": "), (std::vector<std::string>{"a", "b"}));
    EXPECT_TRUE(split("", ":").empty());
    EXPECT_EQ(split("a b", ":"), std::vector<std::string>{"a b"});
}

TEST(ToolsEnvironment, quoting_survives_a_shell) {
    EXPECT_EQ(shell_quote("a b$c"), "'a b$c'");
    EXPECT_EQ(shell_quote("it's"), "'it'\\''s'");
    EXPECT_EQ(shell_quote(""), "''");
}

}  // namespace
}  // namespace gpushm::tools
