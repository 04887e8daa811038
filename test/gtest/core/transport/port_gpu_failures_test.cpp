// SPDX-License-Identifier: BSD-3-Clause
// Every call of the driver fails, in a process of its own: the operation ends with an error or by
// another way, never with wrong data and never not at all.
#include "core/copy/copy_any.hpp"
#include "test/gtest/core/gpu_support.hpp"
#include "test/gtest/core/transport/port_support.hpp"

#include <cstring>
#include <string>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 100000;  // several chunks

/** What is under way while the call fails. */
enum class Scenario {
    message,
    put,
    get,
    put_from_host,
    put_to_host,
    put_by_slots,
    mapped_put,
    mapped_get,  // one copy; within this process nothing has to be mapped for it
    count
};

bool is_mapped(Scenario scenario) {
    return scenario == Scenario::mapped_put || scenario == Scenario::mapped_get;
}

/** Each of them fails once, at its n-th call. */
const char *const kFunctions[] = {"cuPointerGetAttributes", "cuPointerSetAttribute",
                                  "cuCtxPushCurrent",       "cuCtxPopCurrent",
                                  "cuCtxGetCurrent",        "cuCtxGetId",
                                  "cuStreamCreate",         "cuMemHostRegister",
                                  "cuEventCreate",          "cuMemcpyAsync",
                                  "cuMemcpyBatchAsync",     "cuEventRecord",
                                  "cuEventQuery",           "cuMemHostUnregister",
                                  "cuStreamDestroy",        "cuEventDestroy",
                                  "cuStreamSynchronize",    "cuStreamQuery",
                                  "cuDeviceGetUuid",        "cuThreadExchangeStreamCaptureMode"};

/** So do two together; 1 is the n, 2 the error. */
#define REFUSED_TWICE "cuMemcpyAsync:%1$d:%2$d,cuMemcpyAsync:%1$d:%2$d"
const char *const kPairs[] = {REFUSED_TWICE, "cuEventRecord:%1$d:%2$d,cuStreamSynchronize:1:700",
                              "cuEventQuery:%1$d:%2$d,cuStreamSynchronize:1:700"};

/** More, for copy_any tries three times; it reads the source of put_by_slots. */
const char *const kTries[] = {"cuStreamQuery:%1$d:%2$d,cuStreamSynchronize:1:700",
                              REFUSED_TWICE "," REFUSED_TWICE,
                              REFUSED_TWICE "," REFUSED_TWICE ",cuMemcpy:1:%2$d"};

/** Whether copy_any meets it; the last way that it has is cuMemcpy. */
bool is_for_copy_any(Scenario scenario, const std::string &rule) {
    return scenario == Scenario::put_by_slots &&
           (rule.find("cuMemcpyAsync") == 0 || rule.find("cuStreamQuery") == 0);
}

/** For these there is another way, so that the operation does not fail. */
bool has_another_way(Scenario scenario, const std::string &rule) {
    if (is_for_copy_any(scenario, rule)) {
        return rule.find("cuMemcpy:") == std::string::npos;
    }
    for (const char *function :
         {"cuMemcpyAsync", "cuMemcpyBatchAsync", "cuEventRecord", "cuEventQuery",
          "cuMemHostRegister", "cuStreamSynchronize", "cuStreamQuery", "cuCtxGetId",
          "cuCtxPushCurrent", "cuStreamCreate", "cuEventCreate", "cuPointerSetAttribute",
          "cuDeviceGetUuid"}) {
        if (rule.find(function) == 0 && rule.find(',') == std::string::npos) {
            return true;
        }
    }
    return false;
}

/** Without both no copy is known to have happened: their failure is one of the operation. */
bool must_be_told(Scenario scenario, const std::string &rule) {
    return rule.find(',') != std::string::npos && !has_another_way(scenario, rule);
}

#define CHECK_CASE(condition)                                                             \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s, line %d: %s\n", describe.c_str(), __LINE__, #condition); \
            return 1;                                                                     \
        }                                                                                 \
    } while (false)

/** A message must arrive whole, or its sender must know that it does not. */
int run_message(const std::string &describe, TestPort &a, TestPort &b, Buffer &source,
                unsigned *errors) {
    Outcome outcome;
    const Piece pieces[] = {{source.data(), 3000}, {source.data() + 3000, 4000}};
    Status status = send_when_possible(a, b, [&] {
        return a.connection(b).am_pieces(1, nullptr, 0, pieces, 2, nullptr, outcome.completion());
    });
    if (status == Status::in_progress) {
        CHECK_CASE(progress_until({&a, &b}, [&] { return outcome.done(); }));
        CHECK_CASE(outcome.calls == 1);
        status = outcome.status;
    }
    settle({&a, &b});
    CHECK_CASE(status == Status::ok || status == Status::gpu_error);
    CHECK_CASE(b.messages.size() == (status == Status::ok ? 1u : 0u));
    CHECK_CASE(b.messages.empty() || check_message(b.messages[0], 1, 7000, 1).empty());
    b.messages.clear();
    *errors += status != Status::ok;
    return 0;
}

int run_transfer(const std::string &describe, bool put, TestPort &a, TestPort &b, Buffer &source,
                 Buffer &target, unsigned *errors) {
    Outcome outcome;
    const Registration registration(put ? target.data() : source.data(), kBytes);
    const RemoteMemory remote = registration.named();
    CHECK_CASE(
        (put ? a.connection(b).put(source.data(), kBytes, remote, nullptr, outcome.completion())
             : a.connection(b).get(target.data(), kBytes, remote, nullptr, outcome.completion())) ==
        Status::in_progress);
    CHECK_CASE(progress_until({&a, &b}, [&] { return outcome.done(); }));
    settle({&a, &b});
    CHECK_CASE(outcome.calls == 1);
    CHECK_CASE(outcome.status == Status::ok || outcome.status == Status::gpu_error);
    CHECK_CASE(outcome.status != Status::ok || target.check(0, kBytes, 1, 0).empty());
    *errors += outcome.status != Status::ok;
    return 0;
}

/** One operation while the call fails, and the same once more when it does not. */
int run(Scenario scenario, const std::string &rule) {
    const std::string describe =
        rule + " in scenario " + std::to_string(static_cast<int>(scenario));
    const LogCapture log;
    const CUcontext context = enter_primary_context(0);
    CHECK_CASE(context != nullptr);
    Buffer source(scenario == Scenario::put_from_host ? MemoryKind::host : MemoryKind::device,
                  kBytes);
    Buffer target(scenario == Scenario::put_to_host ? MemoryKind::host : MemoryKind::device,
                  kBytes);
    source.fill(1);
    target.fill(2);
    {
        PortConfig config = scenario == Scenario::put_by_slots ? kNoRing : kSmallPort;
        config.peer_mapping = is_mapped(scenario);
        TestPort a(config);
        TestPort b(config);
        if (scenario == Scenario::message) {
            make_ring_ready(a, b);
        }
        set_simulation("SIMCUDA_FAIL", rule.c_str());
        unsigned errors = 0;
        for (int round = 0; round < 2; ++round) {
            const int status =
                scenario == Scenario::message
                    ? run_message(describe, a, b, source, &errors)
                    : run_transfer(describe,
                                   scenario != Scenario::get && scenario != Scenario::mapped_get, a,
                                   b, source, target, &errors);
            CHECK_CASE(status == 0);
            CHECK_CASE(!a.connection(b).failed());
        }
        CHECK_CASE(!must_be_told(scenario, rule) || is_mapped(scenario) || errors == 1);
        CHECK_CASE(!(has_another_way(scenario, rule) || is_mapped(scenario)) || errors == 0 ||
                   rule.find("cuPointerGetAttributes") == 0);
        // The rule is spent or its call does not happen here.
        set_simulation("SIMCUDA_FAIL", "");
        target.fill(2);
        Outcome outcome;
        const Registration registration(target.data(), kBytes);
        CHECK_CASE(a.connection(b).put(source.data(), kBytes, registration.at(), nullptr,
                                       outcome.completion()) == Status::in_progress);
        CHECK_CASE(progress_until({&a, &b}, [&] { return outcome.done(); }));
        CHECK_CASE(outcome.status == Status::ok);
        CHECK_CASE(target.check(0, kBytes, 1, 0).empty());
        set_simulation("SIMCUDA_FAIL", rule.c_str());  // for what happens at the end
    }
    set_simulation("SIMCUDA_FAIL", "");
    CHECK_CASE(current_context() == context);
    return testing::Test::HasFailure() ? 1 : 0;
}

/** One case in a child of its own; the number of failures. */
int run_in_child(Scenario scenario, const std::string &rule) {
    Child child([&](const Channel &) { return run(scenario, rule); });
    const int status = child.reap();
    if (status != 0) {
        fprintf(stderr, "%s in scenario %d: status %d\n", rule.c_str(), static_cast<int>(scenario),
                status);
    }
    return status != 0 ? 1 : 0;
}

int run_in_children(const std::string &rule) {
    int failures = 0;
    for (int scenario = 0; scenario < static_cast<int>(Scenario::count); ++scenario) {
        failures += run_in_child(static_cast<Scenario>(scenario), rule);
    }
    return failures;
}

std::string with_numbers(const char *rule, int n, int error) {
    char text[200];
    snprintf(text, sizeof(text), rule, n, error);
    return text;
}

/** The process that runs the cases does not initialise CUDA. */
FreshProcess every_failure("every-failure", [] {
    int failures = 0;
    for (int n = 1; n <= (kSanitized ? 2 : 4); ++n) {
        for (const int error : {1, 700}) {  // invalid value, illegal address
            for (const char *function : kFunctions) {
                failures += run_in_children(std::string(function) + ":" + std::to_string(n) + ":" +
                                            std::to_string(error));
            }
            for (const char *pair : kPairs) {
                failures += run_in_children(with_numbers(pair, n, error));
            }
            for (const char *tries : kTries) {
                failures += run_in_child(Scenario::put_by_slots, with_numbers(tries, n, error));
            }
        }
    }
    return failures != 0 ? 1 : 0;
});

TEST(PortGpuFailures, EveryCallMayFail) {
    if (!simulated()) {
        GTEST_SKIP() << "makes calls fail";
    }
    EXPECT_EQ(every_failure.run(), 0);
}

}  // namespace
}  // namespace gpushm
