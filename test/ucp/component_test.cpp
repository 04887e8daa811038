// SPDX-License-Identifier: BSD-3-Clause
// The component, its devices and its options, as UCX shows them to users.
#include "command.hpp"

#include <gtest/gtest.h>

namespace gpushm::ucp_test {
namespace {

class UcxInfo : public ::testing::Test {
protected:
    CommandResult ucx_info(const std::string &option, Environment environment = {}) {
        environment["LD_PRELOAD"] = program_folder() + "/plugins/libgpushm_preload.so";
        return run_command({"ucx_info", option}, environment);
    }

    void SetUp() override {
        if (run_command({"ucx_info", "-v"}, {}).status != 0) {
            GTEST_SKIP() << "no ucx_info in PATH (Debian package: ucx-utils)";
        }
    }
};

void expect_contains(const std::string &text, const std::string &wanted) {
    EXPECT_NE(text.find(wanted), std::string::npos) << wanted << " is not in: " << text;
}

TEST_F(UcxInfo, ListsBothDevices) {
    const CommandResult result = ucx_info("-d");
    ASSERT_EQ(result.status, 0) << result.output;
    expect_contains(result.output, "Memory domain: gpushm");
    expect_contains(result.output, "Component: gpushm");
    expect_contains(result.output, "Transport: gpushm");
    expect_contains(result.output, "Device: gpushm");
    // Without a CUDA driver there is nothing to copy.
    if (run_command({program_folder() + "/ucp_peer", "cuda-before"}, {{"UCX_TLS", "self"}})
            .status != 77) {
        expect_contains(result.output, "Memory domain: gpucopy");
        expect_contains(result.output, "Device: gpucopy");
    }
}

TEST_F(UcxInfo, ListsAllOptions) {
    const CommandResult result = ucx_info("-c");
    ASSERT_EQ(result.status, 0) << result.output;
    for (const char *option :
         {"UCX_GPUSHM_RING_SIZE=", "UCX_GPUSHM_GPU_CHUNK=", "UCX_GPUSHM_HOST_CHUNK=",
          "UCX_GPUSHM_MAILBOX_CELLS=", "UCX_GPUSHM_PIN=", "UCX_GPUSHM_OPENMPI_STAGING=8K",
          "UCX_GPUSHM_OPENMPI_HOST_COLLECTIVES=64K",
          "UCX_GPUSHM_ALLOC=", "UCX_GPUSHM_MAX_NUM_EPS="}) {
        expect_contains(result.output, option);
    }
}

TEST_F(UcxInfo, ShowsTheValueThatWasSet) {
    const CommandResult result = ucx_info("-c", {{"UCX_GPUSHM_RING_SIZE", "3m"}});
    expect_contains(result.output, "UCX_GPUSHM_RING_SIZE=3M");
}

class BadOption : public ::testing::TestWithParam<std::pair<const char *, const char *>> {};

TEST_P(BadOption, IsRefusedByUcx) {
    const auto &[option, value] = GetParam();
    const CommandResult result =
        run_command({program_folder() + "/ucp_peer", "tag", "--sizes=8"},
                    {{"LD_PRELOAD", program_folder() + "/plugins/libgpushm_preload.so"},
                     {"UCX_TLS", "gpushm"},
                     {std::string("UCX_GPUSHM_") + option, value}});
    EXPECT_EQ(result.status, 1);
    expect_contains(result.output,
                    std::string("Invalid value for ") + option + ": '" + value + "'");
}

INSTANTIATE_TEST_SUITE_P(
    Options, BadOption,
    ::testing::Values(std::pair("RING_SIZE", "banana"), std::pair("GPU_CHUNK", "-"),
                      std::pair("HOST_CHUNK", "12q"), std::pair("MAILBOX_CELLS", "many"),
                      std::pair("PIN", "maybe")),
    [](const ::testing::TestParamInfo<std::pair<const char *, const char *>> &info) {
        return std::string(info.param.first);
    });

}  // namespace
}  // namespace gpushm::ucp_test
