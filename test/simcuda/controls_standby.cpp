// SPDX-License-Identifier: BSD-3-Clause
// The standby kernel of the simulation, by the protocol that the real one follows.
#include "controls_support.hpp"
#include "core/kernels/standby_protocol.hpp"
#include "core/standby/standby_unit.hpp"
#include "kernel_support.hpp"

#include <cstring>

namespace {

using gpushm::StandbyControl;
using gpushm::StandbyParameters;
using gpushm::StandbyUnit;
using std::chrono::milliseconds;

constexpr std::uint32_t kLaunch = 7;
constexpr std::uint32_t kLong = 400000000;  // ns, of the limits; with the scale, 20 seconds
constexpr auto kPatience = std::chrono::seconds(10);

// Waits until `done`, but not for ever.
template <typename Done>
bool wait_until(Done done) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!done()) {
        if (std::chrono::steady_clock::now() > end) {
            return false;
        }
        std::this_thread::yield();
    }
    return true;
}

// The CPU's side of a control block.
class Giver {
public:
    explicit Giver(std::uint32_t first = 1) : next_(first) {
        __atomic_store_n(&control().done, first, __ATOMIC_RELAXED);
    }

    StandbyControl &control() const { return *reinterpret_cast<StandbyControl *>(block_.data()); }
    std::uint32_t next() const { return next_; }

    CUresult launch(CUstream stream, std::uint32_t beat_ns = kLong,
                    std::uint32_t life_ns = kLong) const {
        return kernel_.launch(stream,
                              StandbyParameters{&control(), kLaunch, next_, beat_ns, life_ns});
    }

    bool started() const {
        return wait_until([&] { return load(control().started) == kLaunch; });
    }

    // `which`: of what the command of this number had read ahead, if the kernel has that.
    void copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, std::uint32_t which = 0) {
        begin(to, static_cast<std::uint32_t>(bytes));
        put({from, which, next_ << 1});
    }

    // The command's number.
    std::uint32_t copy_and_read_ahead(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                                      CUdeviceptr next, std::size_t next_bytes) {
        const std::uint32_t number = next_;
        begin(to, static_cast<std::uint32_t>(bytes) | gpushm::kStandbyReadAhead);
        put({from, 0, next_ << 1});
        put({next, static_cast<std::uint32_t>(next_bytes), next_ << 1});
        return number;
    }

    void write(CUdeviceptr to, const Bytes &payload) {
        begin(to, static_cast<std::uint32_t>(payload.size()) | gpushm::kStandbyInline);
        for (std::size_t at = 0; at < payload.size(); at += gpushm::kStandbyUnitPayload) {
            StandbyUnit unit{0, 0, next_ << 1};
            const std::size_t left = payload.size() - at;
            std::memcpy(&unit, &payload[at], std::min<std::size_t>(12, left));
            put(unit);
        }
    }

    void ask(std::uint32_t number, CUdeviceptr from, std::size_t bytes) {
        begin(number, static_cast<std::uint32_t>(bytes) | gpushm::kStandbyAnswer);
        put({from, 0, next_ << 1});
    }

    // Whether all of it comes.
    bool answered(std::uint32_t number, const Bytes &expected) const {
        for (std::size_t at = 0; at < expected.size(); at += gpushm::kStandbyUnitPayload) {
            const StandbyUnit &place = control().answer[at / gpushm::kStandbyUnitPayload];
            const auto there = [&] { return gpushm::load_unit(place).tag == number; };
            const StandbyUnit unit = wait_until(there) ? gpushm::load_unit(place) : StandbyUnit{};
            if (std::memcmp(&unit, &expected[at],
                            std::min<std::size_t>(12, expected.size() - at)) != 0) {
                return false;
            }
        }
        return true;
    }

    // The first unit of a command.
    void begin(CUdeviceptr to, std::uint32_t argument) { put({to, argument, next_ << 1 | 1}); }

    bool served() const {
        return wait_until([&] { return load(control().done) == next_; });
    }

    void beat(std::uint64_t word) const { gpushm::store_unit(control().beat, {word, 0, 0}); }
    void tell_to_leave() const { gpushm::store_unit(control().beat, {0, kLaunch, 0}); }

    // 0 if no kernel has left.
    std::uint64_t left() const { return __atomic_load_n(&control().left, __ATOMIC_ACQUIRE); }
    bool has_left() const {
        return wait_until([&] { return left() != 0; });
    }
    std::uint32_t first_left() const { return static_cast<std::uint32_t>(left()); }

private:
    static std::uint32_t load(const std::uint32_t &word) {
        return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
    }

    void put(const StandbyUnit &unit) {
        const auto room = [&] { return next_ - load(control().done) < gpushm::kStandbyUnits; };
        EXPECT_TRUE(wait_until(room));
        gpushm::store_unit(control().units[next_++ % gpushm::kStandbyUnits], unit);
    }

    LoadedKernel kernel_{gpushm::kStandbyKernelName};
    PinnedMemory block_{sizeof(StandbyControl)};
    std::uint32_t next_;
};

// In a context of its own, since failures of kernels destroy it.
class StandbyControlsTest : public ControlsTest {
protected:
    void SetUp() override {
        ControlsTest::SetUp();
        if (cu().simulated()) {
            ASSERT_CU(cu().create_context(&own_, 0, 0));
        }
    }
    void TearDown() override {
        if (own_ != nullptr) {
            EXPECT_CU(cu().cuCtxDestroy(own_));
        }
        ControlsTest::TearDown();
    }

    CUcontext own_ = nullptr;
};

// All that a context needs for the test of a failure; nothing of it can be given back afterwards.
struct Doomed {
    CUfunction function = nullptr;
    CUstream stream = nullptr;
    StandbyControl *control = nullptr;

    Doomed() {
        CUmodule module = nullptr;
        void *block = nullptr;
        EXPECT_CU(cu().cuModuleLoadData(&module, "image"));
        EXPECT_CU(cu().cuModuleGetFunction(&function, module, gpushm::kStandbyKernelName));
        EXPECT_CU(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        EXPECT_CU(cu().cuMemHostAlloc(&block, sizeof(StandbyControl), 0));
        control = static_cast<StandbyControl *>(block);
        std::memset(block, 0, sizeof(StandbyControl));
    }

    // Gives commands of two units, numbered from 1, then launches; what the stream ends with.
    CUresult run(const std::vector<StandbyUnit> &units, std::uint32_t beat_ns = 1000000) {
        std::uint32_t number = 1;
        for (StandbyUnit unit : units) {
            unit.tag = number << 1 | (number & 1);
            control->units[number++] = unit;
        }
        StandbyParameters parameters{control, kLaunch, 1, beat_ns, kLong};
        void *arguments[] = {&parameters};
        EXPECT_CU(cu().cuLaunchKernel(function, 1, 1, 1, gpushm::kStandbyThreads, 1, 1, 0, stream,
                                      arguments, nullptr));
        return cu().cuStreamSynchronize(stream);
    }
};

TEST_F(StandbyControlsTest, answers_come_by_themselves) {
    const Bytes data = fresh_bytes(gpushm::kStandbyMostAnswer);
    DeviceMemory from(data);
    for (const char *seed : {"0", "1", "2"}) {
        set("SIMCUDA_SEED", seed);
        Giver giver;
        Stream stream;
        ASSERT_CU(giver.launch(stream));
        ASSERT_TRUE(giver.started());
        giver.ask(77, from.address(), data.size());
        EXPECT_TRUE(giver.answered(77, data));
        giver.ask(78, from.address() + 5, 1);
        EXPECT_TRUE(giver.answered(78, Bytes(1, data[5])));
        EXPECT_TRUE(giver.served());
        giver.tell_to_leave();
        EXPECT_TRUE(giver.has_left());
        ASSERT_CU(cu().cuStreamSynchronize(stream));
    }
}

TEST_F(StandbyControlsTest, what_was_read_ahead_is_not_read_again) {
    const Bytes first = fresh_bytes(9000);
    const Bytes next = fresh_bytes(gpushm::kStandbyMostAhead);
    const Bytes later = fresh_bytes(next.size());
    for (const char *seed : {"0", "1", "2"}) {
        set("SIMCUDA_SEED", seed);
        PinnedMemory from(first);
        PinnedMemory from_next(next);
        DeviceMemory to(next.size());
        Giver giver;
        Stream stream;
        ASSERT_CU(giver.launch(stream));
        ASSERT_TRUE(giver.started());
        const std::uint32_t number = giver.copy_and_read_ahead(
            to.address(), from.address(), first.size(), from_next.address(), next.size());
        EXPECT_TRUE(giver.served());
        giver.copy(to.address(), from.address(), first.size());  // behind it all was read
        EXPECT_TRUE(giver.served());
        std::memcpy(from_next.data(), later.data(), later.size());
        giver.copy(to.address(), from_next.address(), 5000, number);
        EXPECT_TRUE(giver.served());
        giver.copy(to.address() + 5000, from_next.address() + 5000, next.size() - 5000, number + 1);
        EXPECT_TRUE(giver.served());
        giver.tell_to_leave();
        EXPECT_TRUE(giver.has_left());
        ASSERT_CU(cu().cuStreamSynchronize(stream));
        Bytes expected(next.begin(), next.begin() + 5000);
        expected.insert(expected.end(), later.begin() + 5000, later.end());
        EXPECT_EQ(expected, to.read());
    }
}

// With these seeds the kernel is slow at random places, and copies in any order.
class StandbySeedTest : public StandbyControlsTest, public testing::WithParamInterface<int> {};

TEST_P(StandbySeedTest, commands_are_served) {
    set("SIMCUDA_SEED", std::to_string(GetParam()));
    const Bytes data = fresh_bytes(100000);
    const Bytes payload = fresh_bytes(gpushm::kStandbyMostInline - 1);
    const Bytes word = fresh_bytes(8);
    DeviceMemory from(data);
    DeviceMemory to(data.size());
    DeviceMemory small(payload.size());
    PinnedMemory host(data.size());
    PinnedMemory host_word(word.size());
    Giver giver;
    Stream stream;
    ASSERT_CU(giver.launch(stream));
    ASSERT_TRUE(giver.started());
    giver.copy(to.address(), from.address(), data.size());
    giver.write(small.address(), payload);
    giver.copy(host.address(), from.address() + 1, data.size() - 1);
    giver.write(host_word.address(), word);
    EXPECT_TRUE(giver.served());
    EXPECT_EQ(Bytes(data.begin() + 1, data.end()),
              Bytes(host.data(), host.data() + data.size() - 1));
    EXPECT_EQ(word, host_word.read());
    EXPECT_EQ(0u, giver.left());
    giver.tell_to_leave();
    EXPECT_TRUE(giver.has_left());
    EXPECT_EQ(std::uint64_t{kLaunch} << 32 | giver.next(), giver.left());
    EXPECT_CU(cu().cuStreamSynchronize(stream));
    EXPECT_EQ(data, to.read());
    EXPECT_EQ(payload, small.read());
}

TEST_P(StandbySeedTest, units_go_round_and_numbers_wrap) {
    set("SIMCUDA_SEED", std::to_string(GetParam()));
    set("SIMCUDA_DELAY_US", "1");
    const Bytes data = fresh_bytes(1000);
    PinnedMemory to(data.size());
    Giver giver(0u - 300);
    Stream stream;
    ASSERT_CU(giver.launch(stream));
    for (std::size_t i = 0; i < data.size(); ++i) {
        giver.write(to.address() + i, {data[i]});
    }
    EXPECT_TRUE(giver.served());
    EXPECT_EQ(data, to.read());
    giver.tell_to_leave();
}

INSTANTIATE_TEST_SUITE_P(seeds, StandbySeedTest, testing::Values(0, 1, 2));

TEST_F(StandbyControlsTest, it_is_an_operation_of_its_stream) {
    const Bytes data = fresh_bytes(1 << 16);
    DeviceMemory from(data);
    PinnedMemory behind(data.size());
    PinnedMemory beside(data.size());
    Giver giver;
    Stream stream;
    Stream other;
    ASSERT_CU(giver.launch(stream));
    EXPECT_CU(cu().cuMemcpyAsync(behind.address(), from.address(), data.size(), stream));
    EXPECT_CU(cu().cuMemcpyAsync(beside.address(), from.address(), data.size(), other));
    EXPECT_CU(cu().cuStreamSynchronize(other));
    EXPECT_EQ(data, beside.read());
    EXPECT_NE(data, behind.read());
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(stream));
    giver.tell_to_leave();
    EXPECT_CU(cu().cuCtxSynchronize());
    EXPECT_NE(0u, giver.left());
    EXPECT_EQ(data, behind.read());
}

TEST_F(StandbyControlsTest, it_stays_as_long_as_the_beat_changes) {
    Giver giver;
    Stream stream;
    ASSERT_CU(giver.launch(stream, 6000000));  // 300 ms with the scale
    ASSERT_TRUE(giver.started());
    for (std::uint64_t word = 1; word <= 120; ++word) {
        giver.beat(word);
        std::this_thread::sleep_for(milliseconds(5));
    }
    EXPECT_EQ(0u, giver.left());
    EXPECT_TRUE(giver.has_left());
}

TEST_F(StandbyControlsTest, its_life_ends_whatever_the_beat_does) {
    set("SIMCUDA_KERNEL_TIME_SCALE", "10");
    Giver giver;
    Stream stream;
    const auto start = std::chrono::steady_clock::now();
    ASSERT_CU(giver.launch(stream, kLong, 5000000));
    std::uint64_t word = 0;
    const auto beaten = [&] {
        giver.beat(++word);
        return giver.left() != 0;
    };
    EXPECT_TRUE(wait_until(beaten));
    EXPECT_LE(milliseconds(50), std::chrono::steady_clock::now() - start);
}

TEST_F(StandbyControlsTest, half_a_command_is_not_served) {
    const Bytes data = fresh_bytes(8);
    PinnedMemory to(data.size());
    Giver giver;
    Stream stream;
    ASSERT_CU(giver.launch(stream));
    giver.write(to.address(), data);
    const std::uint32_t half = giver.next();
    giver.begin(to.address(), 8);
    EXPECT_TRUE(wait_until([&] { return to.read() == data; }));
    giver.tell_to_leave();
    EXPECT_TRUE(giver.has_left());
    EXPECT_EQ(half, giver.first_left());
}

TEST_F(StandbyControlsTest, a_launch_that_is_told_to_leave_serves_nothing) {
    PinnedMemory to(8);
    Giver giver;
    Stream stream;
    giver.tell_to_leave();
    giver.write(to.address(), fresh_bytes(8));
    const StandbyParameters parameters{&giver.control(), kLaunch, 1, kLong, kLong};
    LoadedKernel kernel(gpushm::kStandbyKernelName);
    ASSERT_CU(kernel.launch(stream, parameters));
    EXPECT_TRUE(giver.has_left());
    EXPECT_EQ(1u, giver.first_left());
    EXPECT_EQ(Bytes(8), to.read());
}

TEST_F(StandbyControlsTest, a_kernel_that_fills_the_device_waits_for_it_and_it_for_that) {
    const Bytes data = fresh_bytes(1 << 16);
    DeviceMemory from(data);
    PinnedMemory to(data.size());
    Giver giver;
    LoadedKernel spin;
    Stream stream;
    Stream other;
    Stream copies;
    Gate gate;
    ASSERT_CU(spin.launch(other, gate.word()));
    ASSERT_CU(giver.launch(stream));
    EXPECT_CU(cu().cuMemcpyAsync(to.address(), from.address(), data.size(), copies));
    EXPECT_CU(cu().cuStreamSynchronize(copies));
    EXPECT_EQ(data, to.read()) << "copy engines are not kernels";
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(0u, giver.control().started);
    gate.open();
    EXPECT_TRUE(giver.started());
    ASSERT_CU(spin.launch(other, gate.word()));
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(other));
    giver.tell_to_leave();
    EXPECT_CU(cu().cuStreamSynchronize(other));
}

TEST_F(StandbyControlsTest, memory_out_of_reach_destroys_the_context) {
    unsigned char pageable[8] = {};
    Doomed doomed;
    EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS,
              doomed.run({{address_of(doomed.control), 8, 0}, {address_of(pageable), 0, 0}}));
    EXPECT_EQ(kLaunch, doomed.control->started);
    EXPECT_EQ(0u, doomed.control->left);
    EXPECT_EQ(0u, doomed.control->done);
    EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuCtxSynchronize());
}

TEST_F(StandbyControlsTest, rows_beyond_the_protocol_destroy_the_context) {
    Doomed doomed;
    const CUdeviceptr answer = address_of(doomed.control->answer);
    EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS,
              doomed.run({{answer, 8 | gpushm::kStandbyRows, 0}, {answer + 64, 2, 0}, {7, 8, 0}}));
    EXPECT_EQ(0u, doomed.control->done);
}

TEST_F(StandbyControlsTest, memory_of_another_device_needs_peer_access) {
    CUcontext other = nullptr;
    ASSERT_TRUE(start_cuda(1, &other));
    {
        DeviceMemory far(fresh_bytes(8));
        EXPECT_CU(cu().cuCtxSetCurrent(own_));
        Doomed doomed;
        const CUdeviceptr to = address_of(&doomed.control->units[100]);
        const std::vector<StandbyUnit> command{{to, 8, 0}, {far.address(), 0, 0}};
        EXPECT_CU(cu().cuCtxEnablePeerAccess(other, 0));
        EXPECT_CU(doomed.run(command));
        EXPECT_CU(cu().cuCtxDisablePeerAccess(other));
        EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, doomed.run(command));
        EXPECT_CU(cu().cuCtxSetCurrent(other));
    }
    EXPECT_CU(cu().cuDevicePrimaryCtxRelease(1));
    EXPECT_CU(cu().cuCtxSetCurrent(own_));
}

TEST_F(StandbyControlsTest, absurd_lengths_destroy_the_context) {
    for (const std::uint32_t argument : {0x7fffffffu, 0xffffffffu, 97 | gpushm::kStandbyInline,
                                         8 | gpushm::kStandbyInline | gpushm::kStandbyReadAhead}) {
        CUcontext context = nullptr;
        ASSERT_CU(cu().create_context(&context, 0, 0));
        Doomed doomed;
        const CUdeviceptr address = address_of(doomed.control->units);
        EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS,
                  doomed.run({{address, argument, 0}, {address, 0, 0}}));
        EXPECT_CU(cu().cuCtxDestroy(context));
    }
}

TEST_F(StandbyControlsTest, it_dies_when_asked_to) {
    set("SIMCUDA_KERNEL_DIES", "2");
    Doomed doomed;
    const CUdeviceptr word = address_of(&doomed.control->units[100]);
    const StandbyUnit first{word, 4, 0};
    const StandbyUnit second{word, 0, 0};
    EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED,
              doomed.run({first, second, first, second, first, second}, kLong));
    EXPECT_EQ(5u, doomed.control->done);
    EXPECT_EQ(0u, doomed.control->left);
}

TEST_F(StandbyControlsTest, it_dies_with_its_context) {
    Doomed doomed;
    StandbyParameters parameters{doomed.control, kLaunch, 1, kLong, kLong};
    void *arguments[] = {&parameters};
    ASSERT_CU(cu().cuLaunchKernel(doomed.function, 1, 1, 1, 1, 1, 1, 0, doomed.stream, arguments,
                                  nullptr));
    CUstream other = nullptr;
    ASSERT_CU(cu().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    parameters.control = doomed.control + 100;
    EXPECT_CU(cu().cuLaunchKernel(doomed.function, 1, 1, 1, 1, 1, 1, 0, other, arguments, nullptr));
    EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuStreamSynchronize(other));
    const auto failed = std::chrono::steady_clock::now();
    EXPECT_CU(cu().cuCtxDestroy(own_));  // waits for what still runs
    own_ = nullptr;
    EXPECT_GT(kPatience, std::chrono::steady_clock::now() - failed);
}

}  // namespace
