// SPDX-License-Identifier: BSD-3-Clause
// The environment of the program to start: the user's values stay, and lists are extended once.
#include "tools/environment.hpp"

#include <gtest/gtest.h>

namespace gpushm::tools {
namespace {

bool is_there(const std::string &path) {
    return path.find("/gone/") == std::string::npos;
}

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
    const Change change = extend_path_list(environment, "LD_PRELOAD", "/g/libgpushm_preload.so",
                                           ": ", is_there, "why");
    EXPECT_EQ(change.kind, Change::Kind::extended);
    EXPECT_EQ(change.reason, "why");
    EXPECT_STREQ(environment.find("LD_PRELOAD"), "libasan.so /x/liby.so:/g/libgpushm_preload.so");
    EXPECT_STREQ(environment.find("OTHER"), "1");
}

TEST(ToolsEnvironment, an_empty_list_gets_no_empty_element) {
    Environment environment = environment_of({"UCX_PLUGIN_PATH="});
    EXPECT_EQ(extend_path_list(environment, "UCX_PLUGIN_PATH", "/g/gpushm", ":", is_there, "").kind,
              Change::Kind::set);
    EXPECT_STREQ(environment.find("UCX_PLUGIN_PATH"), "/g/gpushm");
}

TEST(ToolsEnvironment, a_list_that_has_gpushm_from_another_place_stays) {
    for (const char *entry : {"L=/old/gpushm/", "L=a:/old/gpushm:b", "L=gpushm"}) {
        Environment environment = environment_of({entry});
        EXPECT_EQ(extend_path_list(environment, "L", "/new/gpushm", ":", is_there, "").kind,
                  Change::Kind::kept)
            << entry;
        EXPECT_EQ(environment.entries(), std::vector<std::string>{entry});
    }
    Environment similar = environment_of({"L=/old/gpushm2:/gpushm/other"});
    EXPECT_EQ(extend_path_list(similar, "L", "/new/gpushm", ":", is_there, "").kind,
              Change::Kind::extended);
}

TEST(ToolsEnvironment, an_element_whose_file_is_gone_is_replaced) {
    Environment environment = environment_of({"L=/a/liba.so /gone/lib.so:/b/libb.so"});
    const Change change = extend_path_list(environment, "L", "/new/lib.so", ": ", is_there, "why");
    EXPECT_EQ(change.kind, Change::Kind::extended);
    EXPECT_STREQ(environment.find("L"), "/a/liba.so:/b/libb.so:/new/lib.so");
    EXPECT_NE(change.reason.find("/gone/lib.so"), std::string::npos) << change.reason;
    EXPECT_NE(change.reason.find("why"), std::string::npos) << change.reason;
    Environment both = environment_of({"L=/gone/lib.so:/old/lib.so"});
    EXPECT_EQ(extend_path_list(both, "L", "/new/lib.so", ": ", is_there, "").kind,
              Change::Kind::kept)
        << "the second one is loaded";
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
    EXPECT_EQ(shell_quote("~/a"), "'~/a'");
    EXPECT_EQ(shell_quote("a\nb"), "'a\nb'");
}

TEST(ToolsEnvironment, a_word_that_needs_no_quotes_gets_none) {
    for (const char *word :
         {"/opt/lib/gpushm/libgpushm_preload.so", "ucx,sm", "200", "a:b", "x-y_z.1+%@="}) {
        EXPECT_EQ(shell_quote(word), word)
            << "what Slurm reads from a TaskProlog is not read by a shell";
    }
}

}  // namespace
}  // namespace gpushm::tools
