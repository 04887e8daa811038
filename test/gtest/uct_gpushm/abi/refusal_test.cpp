// SPDX-License-Identifier: BSD-3-Clause
// A UCX that gpushm cannot serve gets one line in its log that says why, once, and is not changed.
#include "test/gtest/uct_gpushm/abi/fake_ucx.hpp"
#include "uct_gpushm/abi/abi.hpp"

#include "config.h"

#include <gtest/gtest.h>

namespace abi_test {
namespace {

using gpushm::abi::register_component;

const gpushm::abi::ComponentDescription nothing{};

std::string refusal(const std::string &middle) {
    return "gpushm " PACKAGE_VERSION " " + middle + "; UCX goes on without it\n";
}

void expect_refusal(const FakeUcx &ucx, const std::string &line) {
    ASSERT_TRUE(ucx.is_loaded()) << dlerror();
    EXPECT_FALSE(register_component(nothing, ucx.code()));
    EXPECT_EQ(ucx.log(), line);
    EXPECT_FALSE(register_component(nothing, ucx.code()));
    EXPECT_EQ(ucx.log(), line) << "said once";
}

TEST(AbiRefusal, unknown_minor_version) {
    const FakeUcx ucx{"minor"};
    expect_refusal(
        ucx, refusal("cannot be used: UCX 1.24.0 (" + ucx.path() +
                     ") is not known, gpushm serves UCX 1.13 to 1.23: install a newer gpushm"));
}

TEST(AbiRefusal, a_ucx_that_is_too_old) {
    const FakeUcx ucx{"old"};
    expect_refusal(ucx,
                   refusal("cannot be used: UCX 1.10.0 (" + ucx.path() +
                           ") is too old, gpushm serves UCX 1.13 to 1.23: install a newer UCX"));
}

TEST(AbiRefusal, unknown_major_version) {
    const FakeUcx ucx{"major"};
    expect_refusal(
        ucx, refusal("cannot be used: UCX 2.13.0 (" + ucx.path() +
                     ") is not known, gpushm serves UCX 1.13 to 1.23: install a newer gpushm"));
}

TEST(AbiRefusal, ucx_with_statistics) {
    const FakeUcx ucx{"statistics"};
    expect_refusal(ucx,
                   refusal("cannot be used: UCX 1.18.0 (" + ucx.path() +
                           ") was built with statistics, which gpushm does not serve: use a UCX "
                           "that was configured without --enable-stats"));
}

TEST(AbiRefusal, ucx_without_a_needed_function) {
    const FakeUcx ucx{"incomplete"};
    expect_refusal(ucx, refusal("needs uct_tl_register, which the UCX at " + ucx.path() +
                                " does not export: use an unmodified UCX"));
}

TEST(AbiRefusal, caller_without_a_libuct) {
    testing::internal::CaptureStderr();
    EXPECT_FALSE(register_component(nothing, dlsym(RTLD_DEFAULT, "qsort")));
    const std::string line = testing::internal::GetCapturedStderr();
    EXPECT_NE(line.find("found no libuct"), std::string::npos) << line;
    EXPECT_EQ(line.find('\n'), line.size() - 1) << "one line";
}

}  // namespace
}  // namespace abi_test
