// SPDX-License-Identifier: BSD-3-Clause
// reduce_on_gpu: what the CPU would compute, or nothing at all.
#include "core/copy/engine_pool.hpp"
#include "core/copy/reduction.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/reclaim/context_lifetime.hpp"
#include "test/gtest/core/gpu_support.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace gpushm {
namespace {

using namespace test;

constexpr ReductionOperation kOperations[] = {ReductionOperation::max,  ReductionOperation::min,
                                              ReductionOperation::sum,  ReductionOperation::prod,
                                              ReductionOperation::land, ReductionOperation::band,
                                              ReductionOperation::lor,  ReductionOperation::bor,
                                              ReductionOperation::lxor, ReductionOperation::bxor};

template <typename Number>
constexpr ElementType type_of();
template <>
constexpr ElementType type_of<int8_t>() {
    return ElementType::int8;
}
template <>
constexpr ElementType type_of<int16_t>() {
    return ElementType::int16;
}
template <>
constexpr ElementType type_of<int32_t>() {
    return ElementType::int32;
}
template <>
constexpr ElementType type_of<int64_t>() {
    return ElementType::int64;
}
template <>
constexpr ElementType type_of<uint8_t>() {
    return ElementType::uint8;
}
template <>
constexpr ElementType type_of<uint16_t>() {
    return ElementType::uint16;
}
template <>
constexpr ElementType type_of<uint32_t>() {
    return ElementType::uint32;
}
template <>
constexpr ElementType type_of<uint64_t>() {
    return ElementType::uint64;
}
template <>
constexpr ElementType type_of<float>() {
    return ElementType::float32;
}
template <>
constexpr ElementType type_of<double>() {
    return ElementType::float64;
}

/** As the text of MPI says, and in C++ whose numbers wrap around. */
template <typename Number>
Number expected(ReductionOperation operation, Number a, Number b) {
    switch (operation) {
        case ReductionOperation::max:
            return a > b ? a : b;
        case ReductionOperation::min:
            return a < b ? a : b;
        case ReductionOperation::land:
            return static_cast<Number>(a != 0 && b != 0);
        case ReductionOperation::lor:
            return static_cast<Number>(a != 0 || b != 0);
        case ReductionOperation::lxor:
            return static_cast<Number>((a != 0) != (b != 0));
        default:
            break;
    }
    if constexpr (std::is_floating_point_v<Number>) {
        return operation == ReductionOperation::sum ? a + b : a * b;
    } else {
        const auto x = static_cast<uint64_t>(a);
        const auto y = static_cast<uint64_t>(b);
        switch (operation) {
            case ReductionOperation::sum:
                return static_cast<Number>(x + y);
            case ReductionOperation::prod:
                return static_cast<Number>(x * y);
            case ReductionOperation::band:
                return static_cast<Number>(x & y);
            case ReductionOperation::bor:
                return static_cast<Number>(x | y);
            default:
                return static_cast<Number>(x ^ y);
        }
    }
}

template <typename Number>
std::vector<Number> numbers(size_t count, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Number> values(count);
    for (Number &value : values) {
        const uint64_t bits = random();
        if constexpr (std::is_floating_point_v<Number>) {
            value = static_cast<Number>(static_cast<int64_t>(bits % 2000) - 1000) / 8;
        } else {
            value = static_cast<Number>(bits % 4 == 0 ? 0 : bits >> 3);  // zeros for land
        }
    }
    return values;
}

/** False: it is left to the CPU. */
bool reduced(ReductionOperation operation, ElementType type, void *result, const void *first,
             const void *second, size_t count) {
    const GpuReduction end = reduce_on_gpu(operation, type, result, first, second, count);
    EXPECT_NE(end, GpuReduction::lost);
    return end == GpuReduction::done;
}

template <typename Number>
class Reduction : public GpuTest {
protected:
    void SetUp() override {
        if (!KernelCodes::possible()) {
            GTEST_SKIP() << "built without a CUDA compiler, or the driver has no kernels";
        }
    }
    void write(const Buffer &buffer, const std::vector<Number> &values) {
        ASSERT_EQ(cuda_.memcpy_sync(device_pointer(buffer.data()), device_pointer(values.data()),
                                    values.size() * sizeof(Number)),
                  CUDA_SUCCESS);
        // Until then the bytes may be on their way ("API synchronization behavior").
        ASSERT_EQ(cuda_.stream_synchronize(nullptr), CUDA_SUCCESS);
    }
    std::vector<Number> read(const Buffer &buffer, size_t count) {
        std::vector<Number> values(count);
        EXPECT_EQ(cuda_.memcpy_sync(device_pointer(values.data()), device_pointer(buffer.data()),
                                    count * sizeof(Number)),
                  CUDA_SUCCESS);
        return values;
    }
    Number *element(const Buffer &buffer, size_t index) {
        return reinterpret_cast<Number *>(buffer.data()) + index;
    }
    static bool is_defined(ReductionOperation operation) {
        return !std::is_floating_point_v<Number> || operation <= ReductionOperation::prod;
    }
};

using AllNumbers = testing::Types<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t,
                                  uint64_t, float, double>;
TYPED_TEST_SUITE(Reduction, AllNumbers);

TYPED_TEST(Reduction, ComputesEveryOperation) {
    using Number = TypeParam;
    constexpr size_t kMost = 64;  // elements on both sides of the result
    // More than all threads of a launch, also where each of them combines words.
    constexpr size_t kMax = (sizeof(Number) < 4 ? 4 / sizeof(Number) : 1) * 300'001 + 1;
    Buffer first(MemoryKind::device, (kMax + 2 * kMost) * sizeof(Number));
    Buffer second(MemoryKind::device, (kMax + 2 * kMost) * sizeof(Number));
    Buffer third(MemoryKind::device, (kMax + 2 * kMost) * sizeof(Number));
    uint64_t seed = 0;
    const auto check = [&](ReductionOperation operation, size_t count, size_t guard,
                           Buffer *result) {
        const auto a = numbers<Number>(count, ++seed);
        const auto b = numbers<Number>(count + 2 * guard, ++seed);
        const auto around = numbers<Number>(count + 2 * guard, ++seed);
        this->write(first, a);
        this->write(third, around);
        this->write(second, b);
        const bool done = reduced(operation, type_of<Number>(), this->element(*result, guard),
                                  first.data(), this->element(second, guard), count);
        ASSERT_EQ(done, this->is_defined(operation));
        auto right = result == &second ? b : around;
        for (size_t i = 0; done && i < count; ++i) {
            right[guard + i] = expected(operation, a[i], b[guard + i]);
        }
        const auto got = this->read(*result, right.size());
        ASSERT_EQ(memcmp(got.data(), right.data(), right.size() * sizeof(Number)), 0)
            << "operation " << static_cast<unsigned>(operation) << ", " << count << " at " << guard;
    };
    for (const ReductionOperation operation : kOperations) {
        for (const size_t count : {size_t{1}, size_t{7}, size_t{256}, size_t{1000}, kMax}) {
            for (const size_t guard : {kMost, kMost - 1}) {
                if (count == kMax && guard != kMost) {
                    continue;  // the same code as for long numbers
                }
                for (Buffer *result : {&second, &third}) {
                    check(operation, count, guard, result);
                }
            }
        }
    }
}

/** A kernel that read or wrote one would end the application's context. */
TYPED_TEST(Reduction, NumbersAtOddAddressesAreLeftToTheCpu) {
    using Number = TypeParam;
    constexpr size_t kCount = 1000;
    Buffer result(MemoryKind::device, 2 * kCount * sizeof(Number));
    Buffer first(MemoryKind::device, 2 * kCount * sizeof(Number));
    Buffer second(MemoryKind::device, 2 * kCount * sizeof(Number));
    result.fill(1);
    for (size_t off = 1; off < sizeof(Number); ++off) {
        const struct {
            size_t result, first, second;
        } offsets[] = {{off, 0, 0}, {0, off, 0}, {0, 0, off}, {off, off, off}};
        for (const auto &offset : offsets) {
            EXPECT_FALSE(reduced(ReductionOperation::sum, type_of<Number>(),
                                 result.data() + offset.result, first.data() + offset.first,
                                 second.data() + offset.second, kCount));
        }
    }
    EXPECT_EQ(result.check(0, 2 * kCount * sizeof(Number), 1, 0), "");
}

class ReductionOf : public Reduction<float> {};

/** What is copied to the GPU lies there as the kernel wants it. */
TEST_F(ReductionOf, OperandsAtOddAddressesInHostMemoryComeToTheGpu) {
    constexpr size_t kCount = 100'000;
    Buffer result(MemoryKind::device, kCount * 4);
    Buffer host(MemoryKind::host, kCount * 4 + 1);
    const auto a = numbers<float>(kCount, 1);
    const auto b = numbers<float>(kCount, 2);
    write(result, a);
    memcpy(host.data() + 1, b.data(), kCount * 4);
    ASSERT_TRUE(reduced(ReductionOperation::sum, ElementType::float32, result.data(), result.data(),
                        host.data() + 1, kCount));
    const auto got = read(result, kCount);
    for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(got[i], a[i] + b[i]) << i;
    }
}

TEST_F(ReductionOf, OperandsInHostMemoryComeToTheGpuWhenThatPays) {
    constexpr size_t kCount = 100'000;
    Buffer result(MemoryKind::device, kCount * 4);
    Buffer host(MemoryKind::host, kCount * 4);
    const auto a = numbers<float>(kCount, 1);
    const auto b = numbers<float>(kCount, 2);
    write(result, a);
    memcpy(host.data(), b.data(), kCount * 4);
    EXPECT_FALSE(reduced(ReductionOperation::sum, ElementType::float32, result.data(),
                         result.data(), host.data(), 100));
    ASSERT_TRUE(reduced(ReductionOperation::sum, ElementType::float32, result.data(), result.data(),
                        host.data(), kCount));
    const auto got = read(result, kCount);
    for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(got[i], a[i] + b[i]) << i;
    }
}

TEST_F(ReductionOf, ResultsElsewhereAreLeftToTheCpu) {
    Buffer device(MemoryKind::device, 4096);
    for (const MemoryKind kind : {MemoryKind::host, MemoryKind::pinned, MemoryKind::managed}) {
        Buffer result(kind, 4096);
        result.fill(3);
        EXPECT_FALSE(reduced(ReductionOperation::sum, ElementType::float32, result.data(),
                             result.data(), device.data(), 1024));
        EXPECT_EQ(result.check(0, 4096, 3, 0), "");
    }
    EXPECT_FALSE(reduced(ReductionOperation::sum, ElementType::float32, device.data(),
                         device.data(), device.data(), 0));
}

/** Open MPI's own functions do the same. */
TEST_F(ReductionOf, WhatIsNoNumberLosesAsOnTheCpu) {
    const float none = std::numeric_limits<float>::quiet_NaN();
    Buffer first(MemoryKind::device, 8);
    Buffer second(MemoryKind::device, 8);
    for (const ReductionOperation operation : {ReductionOperation::max, ReductionOperation::min}) {
        write(first, {none, 5});
        write(second, {6, none});
        ASSERT_TRUE(
            reduced(operation, ElementType::float32, first.data(), first.data(), second.data(), 2));
        const auto got = read(first, 2);
        EXPECT_EQ(got[0], 6);
        EXPECT_TRUE(std::isnan(got[1]));
    }
}

/** In which an operand may be page-locked. */
TEST_F(ReductionOf, IsLeftToTheCpuWhileAContextEnds) {
    SKIP_UNLESS_SIMULATED();
    Buffer result(MemoryKind::device, 4096);
    result.fill(8);
    const auto reduce = [&] {
        return reduced(ReductionOperation::sum, ElementType::float32, result.data(), result.data(),
                       result.data(), 1024);
    };
    {
        const ContextLifetimeLock ending(ContextLifetimeLock::Mode::ending);
        EXPECT_FALSE(reduce());
    }
    EXPECT_EQ(result.check(0, 4096, 8, 0), "");
    EXPECT_TRUE(reduce());
}

/** One launch, whatever the length, and no copy. */
TEST_F(ReductionOf, TakesOneLaunch) {
    SKIP_UNLESS_SIMULATED();
    constexpr size_t kCount = 1'000'000;
    Buffer result(MemoryKind::device, kCount * 4);
    Buffer operand(MemoryKind::device, kCount * 4);
    const auto reduce = [&] {
        return reduced(ReductionOperation::sum, ElementType::float32, result.data(), result.data(),
                       operand.data(), kCount);
    };
    ASSERT_TRUE(reduce());
    reset_calls();
    ASSERT_TRUE(reduce());
    EXPECT_EQ(calls("cuLaunchKernel"), 1u);
    EXPECT_EQ(calls("cuMemcpyAsync"), 0u);
    EXPECT_EQ(calls("cuMemAlloc"), 0u);
}

TEST_F(ReductionOf, ALaunchThatFailsIsLeftToTheCpu) {
    SKIP_UNLESS_SIMULATED();
    Buffer result(MemoryKind::device, 4096);
    result.fill(8);
    set_simulation("SIMCUDA_FAIL", "cuLaunchKernel:1:701");
    EXPECT_FALSE(reduced(ReductionOperation::sum, ElementType::float32, result.data(),
                         result.data(), result.data(), 1024));
    EXPECT_EQ(result.check(0, 4096, 8, 0), "");
}

/** Where the driver does not say whether the kernel has ended, or only when it is asked again. */
class ReductionEnds : public ReductionOf {
protected:
    static constexpr size_t kCount = 1000;

    /** Adds 5 to each. `failures`: so often a wait for the kernel fails. */
    GpuReduction add_five(int failures) {
        write(result_, std::vector<float>(kCount, 100));
        write(operand_, std::vector<float>(kCount, 5));
        std::string rules;
        for (int i = 0; i < failures; ++i) {
            rules +=
                std::string(i == 0 ? "" : ",") + "cuStreamQuery:1:700,cuStreamSynchronize:1:700";
        }
        set_simulation("SIMCUDA_FAIL", rules.c_str());
        const GpuReduction end =
            reduce_on_gpu(ReductionOperation::sum, ElementType::float32, result_.data(),
                          result_.data(), operand_.data(), kCount);
        set_simulation("SIMCUDA_FAIL", "");
        EXPECT_EQ(cuda_function<CUresult (*)()>("cuCtxSynchronize")(), CUDA_SUCCESS);
        EXPECT_EQ(read(result_, kCount), std::vector<float>(kCount, 105)) << "once";
        return end;
    }

    Buffer result_{MemoryKind::device, kCount * 4};
    Buffer operand_{MemoryKind::device, kCount * 4};
};

TEST_F(ReductionEnds, AreAskedForASecondTime) {
    SKIP_UNLESS_SIMULATED();
    const LogCapture log;
    EXPECT_EQ(add_five(1), GpuReduction::done);
    EXPECT_EQ(log.count("failed"), 0u);
}

/** The CPU would do it again. */
TEST_F(ReductionEnds, ThatAreNotKnownAreAnError) {
    SKIP_UNLESS_SIMULATED();
    const LogCapture log;
    const std::vector<BorrowedEngine> others(64);  // all that have copied for other tests
    EXPECT_EQ(add_five(2), GpuReduction::lost);
    EXPECT_EQ(log.count("a GPU kernel of gpushm failed"), 1u);
    reset_calls();
    EXPECT_EQ(add_five(0), GpuReduction::done);
    EXPECT_EQ(calls("cuStreamCreate"), 1u) << "by another engine";
}

}  // namespace
}  // namespace gpushm
