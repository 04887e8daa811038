// SPDX-License-Identifier: BSD-3-Clause
// Each scenario of ucp_peer, in processes of its own, over gpushm alone and beside UCX's own.
#include "command.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace gpushm::ucp_test {
namespace {

constexpr int kSkipped = 77;
constexpr const char *kKinds = "--kinds=host,device,managed";

std::string plugin_folder() {
    return program_folder() + "/plugins";
}

Environment with_preload() {
    return {{"LD_PRELOAD", plugin_folder() + "/libgpushm_preload.so"},
            {"UCX_TLS", "gpushm"},
            // A UCX with CUDA of its own: not that.
            {"UCX_MODULES", "^cuda"},
            {"UCX_WARN_UNUSED_ENV_VARS", "n"}};
}

std::vector<std::string> peer_command(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program_folder() + "/ucp_peer");
    return arguments;
}

/** The second number of the version, 13 to 23. */
unsigned ucx_minor() {
    static const unsigned minor = [] {
        const std::string version = run_command(peer_command({"version"}), {}).output;
        return static_cast<unsigned>(
            std::strtoul(version.substr(version.find('.') + 1).c_str(), nullptr, 10));
    }();
    return minor;
}

/** Segments are no files of /dev/shm, so that nothing of ours may ever be there. */
void expect_nothing_in_dev_shm() {
    std::error_code none_mounted;
    for (const auto &entry : std::filesystem::directory_iterator("/dev/shm", none_mounted)) {
        EXPECT_EQ(entry.path().string().find("gpushm"), std::string::npos) << entry.path();
    }
}

/** Runs the scenario until a peer that is to be killed during a transfer does not outlive it. The
 * survivor reads mapped memory without the peer's help, so a peer that the operating system lets
 * wait dies after the transfer. */
CommandResult run_scenario(const std::vector<std::string> &arguments,
                           const Environment &environment) {
    constexpr int kMaxLateDeaths = 5;
    CommandResult result = run_command(peer_command(arguments), environment);
    for (int late = 0; late < kMaxLateDeaths && result.status != 0 &&
                       result.output.find("the peer died too late") != std::string::npos;
         ++late) {
        result = run_command(peer_command(arguments), environment);
    }
    return result;
}

/** Without an error, and without a word of gpushm, unless `may_complain`. */
void expect_success(const std::vector<std::string> &arguments, const Environment &environment,
                    bool may_complain = false) {
    const CommandResult result = run_scenario(arguments, environment);
    if (result.status == kSkipped) {
        GTEST_SKIP() << result.output;
    }
    EXPECT_EQ(result.status, 0) << result.output;
    expect_nothing_in_dev_shm();
    if (!may_complain) {
        EXPECT_EQ(result.output.find("gpushm: "), std::string::npos) << result.output;
    }
}

struct Case {
    const char *name;
    std::vector<std::string> arguments;
    Environment environment = {};
};

void PrintTo(const Case &tested, std::ostream *stream) {
    *stream << tested.name;
}

const Case kCases[] = {
    {"tag", {"tag", kKinds}},
    {"tag_pinned", {"tag", "--kinds=pinned,device", "--sizes=8,9000,600001"}},
    {"active_message", {"am", kKinds}},
    {"stream", {"stream", kKinds}},
    {"put_and_get", {"rma", kKinds}},
    {"put_and_get_host", {"rma", "--kinds=host"}},
    {"atomics", {"atomics"}},
    {"window", {"window", kKinds}},
    {"loopback", {"loopback", kKinds}},
    {"wakeup", {"wakeup", kKinds, "--count=1500"}},
    {"wakeup_short", {"wakeup", "--sizes=8,200", "--count=10000"}},
    {"killed_at_rest", {"killed", "--when=rest"}},
    {"killed_receiver_host", {"killed", "--when=send"}},
    {"killed_receiver_device", {"killed", "--when=send", "--kinds=device"}},
    {"killed_sender_host", {"killed", "--when=receive"}},
    {"killed_sender_device", {"killed", "--when=receive", "--kinds=device"}},
    {"killed_receiver_eager", {"killed", "--when=send", "--bytes=8000", "--messages=600"}},
    {"killed_unanswered", {"killed", "--when=unanswered"}},
    // Looked after all the time: a peer that is stopped is not dead.
    {"stopped_host", {"stopped"}, {{"UCX_KEEPALIVE_INTERVAL", "100ms"}}},
    {"stopped_device", {"stopped", kKinds}, {{"UCX_KEEPALIVE_INTERVAL", "100ms"}}},
    {"close_flush_host", {"close-flush"}},
    {"close_flush_device", {"close-flush", "--kinds=device"}},
    {"close_force_host", {"close-force"}},
    {"close_force_device", {"close-force", "--kinds=device"}},
    {"close_stopped_host", {"close-stopped"}, {{"UCX_GPUSHM_CMA", "n"}}},
    {"close_stopped_device", {"close-stopped", "--kinds=device"}},
    {"waiting_then_send", {"waiting", "--then=send"}},
    {"waiting_then_fill", {"waiting", "--then=fill"}},
    {"waiting_then_flush", {"waiting", "--then=flush"}},
    {"waiting_then_close", {"waiting", "--then=close"}},
    {"waiting_then_force", {"waiting", "--then=force"}},
    {"waiting_put", {"waiting-put"}, {{"UCX_RNDV_SCHEME", "put_zcopy"}}},
    {"threads", {"threads", kKinds, "--threads=4", "--count=100"}},
    {"many_endpoints", {"many", "--workers=6"}},
    {"taken_device", {"taken-device"}, {{"SIMCUDA_EXCLUSIVE", "1"}}},
    {"changing_kinds", {"changing-kinds"}},
    {"changed_pages", {"changed-pages"}},
    {"reused_addresses", {"reused-addresses"}},
    {"cuda_before_ucx", {"cuda-before"}},
    {"cuda_after_ucx", {"cuda-after"}},
    // Some ten thousand messages, one after the other.
    {"lookups", {"lookups", "--deadline=240"}},
    {"allocated_by_ucx", {"allocated-by-ucx"}},
};

std::string case_name(const ::testing::TestParamInfo<std::tuple<Case, const char *>> &info) {
    return std::string(std::get<0>(info.param).name) + "_proto_" + std::get<1>(info.param);
}

/** Why UCX itself cannot pass; null if it can. */
const char *fault_of_ucx(const std::string &name, bool v2) {
    if (name == "put_and_get" && !v2) {
        return "ucp_get_rep_handler (rma_sw.c) copies into GPU memory by the CPU";
    }
    if (name == "put_and_get_host" && !v2 && ucx_minor() >= 22) {
        return "UCX has no software put without PROTO_ENABLE";
    }
    if (name.compare(0, 13, "killed_sender") == 0 && v2 && ucx_minor() == 13) {
        return "ucp_proto_rndv_get_zcopy_fetch_completion (rndv_get.c) ignores the error";
    }
    if ((name == "killed_receiver_eager" || name == "waiting_then_force") && v2 &&
        ucx_minor() == 13) {
        return "eager messages that wait when their endpoint ends meet \"stubs.c: Assertion `0' "
               "failed\"";
    }
    return nullptr;
}

class OverGpushm : public ::testing::TestWithParam<std::tuple<Case, const char *>> {};

TEST_P(OverGpushm, Works) {
    const auto &[tested, proto] = GetParam();
    if (const char *reason = fault_of_ucx(tested.name, std::string(proto) == "y")) {
        GTEST_SKIP() << reason;
    }
    Environment environment = with_preload();
    environment.insert(tested.environment.begin(), tested.environment.end());
    environment["UCX_PROTO_ENABLE"] = proto;
    // Requests that were under way are refused after a close by force.
    const bool may_complain = tested.arguments.front().compare(0, 6, "close-") == 0;
    expect_success(tested.arguments, environment, may_complain);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, OverGpushm,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values("n", "y")),
                         case_name);

// Large messages eagerly, by several lanes.
const Environment kEagerRails = {
    {"UCX_PROTO_ENABLE", "n"}, {"UCX_RNDV_THRESH", "inf"}, {"UCX_MAX_EAGER_LANES", "3"}};

/** UCX chooses from all its transports. */
class BesideOthers : public ::testing::TestWithParam<Case> {};

TEST_P(BesideOthers, Works) {
    Environment environment = with_preload();
    environment["UCX_TLS"] = "all";
    environment.insert(GetParam().environment.begin(), GetParam().environment.end());
    expect_success(GetParam().arguments, environment);
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, BesideOthers,
    ::testing::Values(
        Case{"tag", {"tag", kKinds, "--sizes=1,8192,600001"}},
        Case{"active_message", {"am", kKinds, "--sizes=1,8192,600001"}},
        Case{"window", {"window", kKinds}}, Case{"loopback", {"loopback", kKinds}},
        Case{"wakeup", {"wakeup", kKinds, "--count=300"}},
        Case{"changing_kinds", {"changing-kinds"}},
        Case{"eager_rails", {"tag", kKinds, "--sizes=8,8192,100000,1000000"}, kEagerRails},
        Case{"eager_rails_am", {"am", kKinds, "--sizes=8,8192,100000,1000000"}, kEagerRails},
        Case{"eager_and_rndv_rails",
             {"tag", kKinds, "--sizes=8,8192,100000,1000000"},
             {{"UCX_PROTO_ENABLE", "n"}, {"UCX_MAX_EAGER_RAILS", "4"}}}),
    [](const ::testing::TestParamInfo<Case> &info) { return std::string(info.param.name); });

TEST(Loading, PluginPathIsEnough) {
    if (ucx_minor() < 22) {
        GTEST_SKIP() << "UCX has no UCX_PLUGIN_PATH before 1.22";
    }
    Environment environment = with_preload();
    environment.erase("LD_PRELOAD");
    environment["UCX_PLUGIN_PATH"] = plugin_folder();
    expect_success({"tag", kKinds, "--sizes=8,600001"}, environment);
}

TEST(Loading, BothWaysTogether) {
    Environment environment = with_preload();
    environment["UCX_PLUGIN_PATH"] = plugin_folder();
    expect_success({"tag", "--sizes=8,600001"}, environment);
}

TEST(Hooks, WithoutThemTheDriverTellsWhatIsWhere) {
    if (ucx_minor() >= 22) {
        GTEST_SKIP() << "UCX 1.23 does not bear UCX_MEM_EVENTS=n (ucs_async_thread_is_from_async)";
    }
    Environment environment = with_preload();
    environment["UCX_MEM_EVENTS"] = "n";
    expect_success({"changing-kinds"}, environment);
    expect_success({"reused-addresses", "--rounds=1000"}, environment);
}

TEST(HostOnlyProcess, NeitherInitialisesCudaNorMakesAContext) {
    char folder[] = "/tmp/gpushm_counts_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    const std::string counts = std::string(folder) + "/counts";
    Environment environment = with_preload();
    environment["SIMCUDA_COUNTS"] = counts;
    expect_success({"tag", "--kinds=host"}, environment);
    const std::string calls = run_command({"cat", counts}, {}).output;
    run_command({"rm", "-r", folder}, {});
    if (calls.find("cu") == std::string::npos) {
        GTEST_SKIP() << "the driver does not count calls";
    }
    for (const char *function : {"cuInit", "Ctx", "cuStream", "Event", "HostRegister", "Memcpy"}) {
        EXPECT_EQ(calls.find(function), std::string::npos) << calls;
    }
    const std::string query = "cuPointerGetAttributes ";
    const size_t found = calls.find(query);
    EXPECT_TRUE(found == std::string::npos || std::stoul(calls.substr(found + query.size())) < 10)
        << "the driver is asked in each message:\n"
        << calls;
}

}  // namespace
}  // namespace gpushm::ucp_test
