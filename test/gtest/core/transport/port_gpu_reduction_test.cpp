// SPDX-License-Identifier: BSD-3-Clause
// Numbers of another process that are reduced as they arrive (ReducedArrivals).
#include "test/gtest/core/full_gpu.hpp"
#include "test/gtest/core/transport/port_gpu_peer.hpp"

#include "core/copy/reduced_arrivals.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kBytes = 70'001;
constexpr uint64_t kOwnSeed = 100;

using Bytes = std::vector<unsigned char>;

Bytes pattern_of(uint64_t seed) {
    Bytes bytes(kBytes);
    fill_pattern(bytes.data(), kBytes, seed);
    return bytes;
}

/** A process on another GPU, whose memory is mapped here, and two buffers of this process. */
struct Arrivals {
    int start() {
        CHECK(pair.start());
        CHECK(load_kernels(current_context()));
        remote = pair.peer.allocate(kBytes);
        own.emplace(MemoryKind::device, kBytes);
        result.emplace(MemoryKind::device, kBytes);
        own->fill(kOwnSeed);
        return get_patterns(pair, *result, kBytes, remote, 0, 50);  // the first map the memory
    }

    Status get(size_t length = kBytes) { return pair.get(result->data(), length, remote); }

    ArrivalReduction sum() const {
        return {ReductionOperation::sum, ElementType::uint8, own->data(), true, kBytes};
    }

    /** Whether the result has the peer's pattern of that seed, alone or added to the own numbers.
     */
    bool holds(uint64_t seed, bool is_reduced) const {
        Bytes expected = pattern_of(seed);
        if (is_reduced) {
            const Bytes numbers = pattern_of(kOwnSeed);
            std::transform(expected.begin(), expected.end(), numbers.begin(), expected.begin(),
                           std::plus<>());
        }
        return contents_of(*result, kBytes) == expected;
    }

    Pair pair{1};
    RemoteMemory remote;
    std::optional<Buffer> own;
    std::optional<Buffer> result;
};

FreshProcess reduced("reduced-on-arrival", [] {
    Arrivals arrivals;
    CHECK(arrivals.start() == 0);
    for (uint64_t seed = 200; seed < 210; ++seed) {
        arrivals.pair.peer.fill(seed);
        arrivals.result->fill(1);
        const ReducedArrival arrival(arrivals.result->data(), arrivals.sum());
        CHECK(!arrival.is_reduced());
        if (simulated()) {
            reset_calls();
        }
        CHECK(arrivals.get() == Status::ok);
        CHECK(!simulated() || (calls("cuLaunchKernel") == 1 && calls("cuMemcpyAsync") == 0 &&
                               calls("cuPointerGetAttributes") == 1));
        CHECK(arrival.is_reduced());
        CHECK(arrivals.holds(seed, true));
        CHECK(arrivals.own->check(0, kBytes, kOwnSeed, 0).empty());
        CHECK(arrivals.pair.peer.holds(seed));
    }
    CHECK(arrivals.get() == Status::ok);  // nothing waits for it any more
    CHECK(arrivals.result->check(0, kBytes, 209, 0).empty());
    return arrivals.pair.peer.finish();
});

/** Other messages than the one that is waited for arrive as they are. */
FreshProcess not_meant("not-reduced-on-arrival", [] {
    Arrivals arrivals;
    CHECK(arrivals.start() == 0);
    arrivals.pair.peer.fill(200);
    Buffer other(MemoryKind::device, kBytes);
    const ReducedArrival arrival(arrivals.result->data(), arrivals.sum());
    CHECK(arrivals.pair.get(other.data(), kBytes, arrivals.remote) == Status::ok);
    CHECK(other.check(0, kBytes, 200, 0).empty());
    CHECK(arrivals.get(kBytes - 1) == Status::ok);
    CHECK(contents_of(*arrivals.result, 1).front() == pattern_of(200).front());
    CHECK(!arrival.is_reduced());
    // The kernel does not read numbers at such an address.
    const ArrivalReduction words = {ReductionOperation::sum, ElementType::int32,
                                    arrivals.own->data(), false, 1000};
    const ReducedArrival unaligned(other.data(), words);
    RemoteMemory odd = arrivals.remote;
    odd.address += 1;
    CHECK(arrivals.pair.get(other.data(), 4000, odd) == Status::ok);
    CHECK(!unaligned.is_reduced());
    const Bytes expected = pattern_of(200);
    const Bytes got = contents_of(other, 4000);
    CHECK(std::equal(got.begin(), got.end(), expected.begin() + 1));
    return arrivals.pair.peer.finish();
});

/** Whatever call of the driver fails, the numbers or the result arrive, and it is known which. */
FreshProcess refused("reduction-on-arrival-refused", [] {
    Arrivals arrivals;
    CHECK(arrivals.start() == 0);
    uint64_t seed = 200;
    for (const char *rule : {"cuLaunchKernel:1:1", "cuEventRecord:1:1", "cuEventQuery:1:1",
                             "cuEventCreate:1:1", "cuStreamCreate:1:2"}) {
        arrivals.pair.peer.fill(++seed);
        arrivals.result->fill(1);
        const ReducedArrival arrival(arrivals.result->data(), arrivals.sum());
        set_simulation("SIMCUDA_FAIL", rule);
        CHECK(arrivals.get() == Status::ok);
        set_simulation("SIMCUDA_FAIL", "");
        CHECK(arrivals.holds(seed, arrival.is_reduced()));
        CHECK(rule != std::string("cuLaunchKernel:1:1") || !arrival.is_reduced());
    }
    return arrivals.pair.peer.finish();
});

/** The kernel may still run, and would add to numbers that arrive in another way. */
FreshProcess lost("reduction-on-arrival-lost", [] {
    Arrivals arrivals;
    CHECK(arrivals.start() == 0);
    for (const char *rule : {"cuEventQuery:1:1,cuStreamSynchronize:1:1",
                             "cuEventRecord:1:1,cuStreamSynchronize:1:1"}) {
        arrivals.pair.peer.reset_calls();
        const ReducedArrival arrival(arrivals.result->data(), arrivals.sum());
        set_simulation("SIMCUDA_FAIL", rule);
        CHECK(arrivals.get() == Status::gpu_error);
        set_simulation("SIMCUDA_FAIL", "");
        CHECK(!arrival.is_reduced());
        CHECK(arrivals.pair.peer.calls_besides("cuPointerGetAttributes") == 0);
    }
    return arrivals.pair.peer.finish();
});

/** A reduction waits for a kernel of the application that fills the GPU; copies do not wait for
 * the reduction. */
FreshProcess full("reduction-on-arrival-full-gpu", [] {
    Arrivals arrivals;
    CHECK(arrivals.start() == 0);
    arrivals.pair.peer.fill(200);
    Buffer other(MemoryKind::device, kBytes);
    const ReducedArrival arrival(arrivals.result->data(), arrivals.sum());
    CHECK(arrivals.get() == Status::ok);  // the driver loads a kernel when it is launched first
    arrivals.pair.peer.fill(201);
    FullGpu gpu;
    gpu.fill();
    Connection &connection = arrivals.pair.peer.connection();
    Outcome outcome;
    CHECK(connection.get(arrivals.result->data(), kBytes, arrivals.remote, nullptr,
                         outcome.completion()) == Status::in_progress);
    CHECK(arrivals.pair.get(other.data(), kBytes, arrivals.remote) == Status::ok);
    CHECK(gpu.is_full() && !outcome.done());
    gpu.open();
    CHECK(progress_until({&*arrivals.pair.port}, [&] { return outcome.done(); }));
    CHECK(arrival.is_reduced());
    CHECK(other.check(0, kBytes, 201, 0).empty());
    CHECK(arrivals.holds(201, true));
    return arrivals.pair.peer.finish();
});

class PortGpuReduction : public testing::Test {
protected:
    void SetUp() override {
        int devices = 0;
        const auto init = cuda_function<CUresult (*)(unsigned)>("cuInit");
        const auto count = cuda_function<CUresult (*)(int *)>("cuDeviceGetCount");
        if (!simulated() &&
            (init(0) != CUDA_SUCCESS || count(&devices) != CUDA_SUCCESS || devices < 2)) {
            GTEST_SKIP() << "needs two GPUs";
        }
    }
};

TEST_F(PortGpuReduction, OneLaunchAndNoCopy) {
    EXPECT_EQ(reduced.run(), 0);
}

TEST_F(PortGpuReduction, OtherMessagesArriveAsTheyAre) {
    EXPECT_EQ(not_meant.run(), 0);
}

TEST_F(PortGpuReduction, FailuresAreSeen) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(refused.run(), 0);
}

TEST_F(PortGpuReduction, ThatMayStillRunIsAnError) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(lost.run(), 0);
}

TEST_F(PortGpuReduction, HoldsUpNoCopy) {
    EXPECT_EQ(full.run(), 0);
}

}  // namespace
}  // namespace gpushm
