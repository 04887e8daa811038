// SPDX-License-Identifier: BSD-3-Clause
#include "app_calls.hpp"

namespace gpushm::perf {
namespace {

constexpr size_t kBytes = 4 << 20;  // what is allocated and freed

// Of the launched kernel, which ends at once.
constexpr unsigned kThreads = 256;

}  // namespace

AppCalls::AppCalls(const Driver &driver) : driver_(driver), kernel_(driver) {
    driver_.require(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    capture_graph();
    const auto allocate = [this] {
        driver_.require(driver_.cuMemAlloc(&memory_, kBytes), "cuMemAlloc");
    };
    const auto release = [this] { driver_.require(driver_.cuMemFree(memory_), "cuMemFree"); };
    const auto context_sync = [this] {
        driver_.require(driver_.cuCtxSynchronize(), "cuCtxSynchronize");
    };
    const auto launch = [this] {
        kernel_.launch(stream_, 0, 1, kThreads);
        synchronize();
    };
    const auto launch_graph = [this] {
        driver_.require(driver_.cuGraphLaunch(executable_, stream_), "cuGraphLaunch");
        synchronize();
    };
    calls_ = {{"nothing", {}, [] {}, {}},      {"context-sync", {}, context_sync, {}},
              {"free", allocate, release, {}}, {"alloc", {}, allocate, release},
              {"launch", {}, launch, {}},      {"graph", {}, launch_graph, {}}};
    if (kernel_.can_be_cooperative()) {
        const auto launch_cooperative = [this] {
            kernel_.launch_cooperative(stream_);
            synchronize();
        };
        calls_.push_back({"cooperative", {}, launch_cooperative, {}});
    }
}

AppCalls::~AppCalls() {
    driver_.cuGraphExecDestroy(executable_);
    driver_.cuGraphDestroy(graph_);
    driver_.cuStreamDestroy(stream_);
}

void AppCalls::capture_graph() {
    driver_.require(driver_.cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                    "cuStreamBeginCapture");
    kernel_.launch(stream_, 0, 1, kThreads);
    driver_.require(driver_.cuStreamEndCapture(stream_, &graph_), "cuStreamEndCapture");
    driver_.require(driver_.cuGraphInstantiateWithFlags(&executable_, graph_, 0),
                    "cuGraphInstantiate");
}

void AppCalls::synchronize() const {
    driver_.require(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

std::string AppCalls::note() const {
    const std::string missing =
        kernel_.can_be_cooperative() ? "" : "left out: cooperative, which this driver has not";
    return kernel_.note() + (kernel_.note().empty() || missing.empty() ? "" : "; ") + missing;
}

}  // namespace gpushm::perf
