// SPDX-License-Identifier: BSD-3-Clause
// StandbyWorth on programs whose times are made up: it ends with the quicker way soon, whatever the
// steps are like, loses little to trials, and sees when the program changes.
#include "core/standby/standby_worth.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

using namespace gpushm;

namespace {

constexpr uint64_t kSeeds = 200;

/** What a step takes in each way, us. */
struct Step {
    double with;
    double without;
    unsigned copies = 1;
    double between = 0.3;  // two copies, besides
    double gain = 0;       // of the kernel in each of them
    unsigned waits = 0;
    double start = 10;  // of the kernel, in the first step with it
};

/** Processes that make their steps together. Each of their steps begins when all have ended the one
 * before. */
class Program {
public:
    using Together = std::function<double(const std::vector<double> &)>;

    explicit Program(uint64_t seed, unsigned processes = 1, Together together = longest)
        : random_(seed), together_(together), processes_(processes) {
        now_ = 1e9 + 1000 * static_cast<double>(seed * 7919 % 100'000);  // us
    }

    static double longest(const std::vector<double> &times) {
        return *std::max_element(times.begin(), times.end());
    }
    static double sum(const std::vector<double> &times) {
        double all = 0;
        for (double time : times) {
            all += time;
        }
        return all;
    }

    /** Each time is multiplied by 1 and so much of a normal distribution. */
    Program &noise(double share) {
        noise_ = share;
        return *this;
    }
    /** One step in `every` takes so much longer. */
    Program &outliers(unsigned every, double microseconds) {
        every_ = every;
        outlier_ = microseconds;
        return *this;
    }

    void pause(double microseconds) { now_ += microseconds; }

    /** In us. */
    double run(unsigned steps, const Step &step) {
        const double begin = now_;
        for (unsigned i = 0; i < steps; ++i) {
            std::vector<double> times;
            for (Process &process : processes_) {
                times.push_back(one_step(process, step));
            }
            now_ += together_(times);
            if (every_ != 0 && random_() % every_ == 0) {
                now_ += outlier_;
            }
        }
        return now_ - begin;
    }

    bool with(unsigned process = 0) const { return processes_[process].worth.wants_kernel(); }
    bool is_trying(unsigned process = 0) const { return processes_[process].worth.is_trying(); }
    unsigned with_kernel() const {
        return static_cast<unsigned>(
            std::count_if(processes_.begin(), processes_.end(),
                          [](const Process &process) { return process.worth.wants_kernel(); }));
    }
    bool any_is_trying() const {
        return std::any_of(processes_.begin(), processes_.end(),
                           [](const Process &process) { return process.worth.is_trying(); });
    }
    unsigned changes() const { return processes_.front().changes; }

private:
    struct Process {
        StandbyWorth worth;
        bool was_with = false;
        uint64_t waits = 0;
        unsigned changes = 0;
    };

    /** The copies at its begin, then the rest. */
    double one_step(Process &process, const Step &step) {
        double time = now_;
        process.waits += step.waits;
        for (unsigned i = 0; i < step.copies; ++i) {
            process.worth.note_copy(static_cast<uint64_t>(time * 1000), process.waits);
            time += i + 1 == step.copies
                        ? 0
                        : varied(step.between - (process.worth.wants_kernel() ? step.gain : 0));
        }
        const bool with = process.worth.wants_kernel();
        const double start = with && !process.was_with ? step.start : 0;
        process.changes += with != process.was_with ? 1 : 0;
        process.was_with = with;
        return time - now_ + start + varied(with ? step.with : step.without);
    }
    double varied(double time) {
        return time * std::max(0.3, 1 + noise_ * std::normal_distribution<double>()(random_));
    }

    std::mt19937_64 random_;
    Together together_;
    std::vector<Process> processes_;
    double now_;
    double noise_ = 0;
    unsigned every_ = 0;
    double outlier_ = 0;
};

const Step kPingPong = {8, 17};
const Step kDeviceWait = {61, 52, 1, 0.3, 0, 1};
const Step kOverlap = {61.5, 58, 2};

/** Of so many programs, those that have the kernel after `steps`. */
unsigned with_kernel_after(unsigned steps, const Step &step,
                           const std::function<void(Program &)> &prepare = {}) {
    unsigned with = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
        Program program(seed);
        if (prepare) {
            prepare(program);
        }
        program.run(steps, step);
        while (program.is_trying()) {  // later trials
            program.run(1, step);
        }
        with += program.with() ? 1 : 0;
    }
    return with;
}

// ---------------------------------------------------------------- it finds what is quicker

TEST(StandbyWorth, StaysAwayWithin50StepsWhereItCosts) {
    for (const Step &step : {kDeviceWait, kOverlap, Step{5.2, 5}, Step{5100, 5000}}) {
        for (uint64_t seed = 0; seed < kSeeds; ++seed) {
            Program program(seed);
            program.run(50, step);
            ASSERT_FALSE(program.is_trying()) << step.with << " us, " << seed;
            ASSERT_FALSE(program.with()) << step.with << " us, " << seed;
        }
    }
}

TEST(StandbyWorth, ComesWithin50StepsWhereItGains) {
    for (const Step &step : {kPingPong, Step{34, 40}, Step{30, 31, 4}}) {
        for (uint64_t seed = 0; seed < kSeeds; ++seed) {
            Program program(seed);
            program.run(50, step);
            ASSERT_FALSE(program.is_trying()) << step.with << " us, " << seed;
            ASSERT_TRUE(program.with()) << step.with << " us, " << seed;
        }
    }
}

TEST(StandbyWorth, StaysAwayWhereItChangesNothing) {
    EXPECT_EQ(with_kernel_after(400, {30, 30}), 0u);
}

TEST(StandbyWorth, ALoopLosesLittleToTrials) {
    for (const Step &step : {kPingPong, kDeviceWait, kOverlap}) {
        Program program(1);
        program.run(50, step);
        const double best = 20'000 * std::min(step.with, step.without);
        const double taken = program.run(20'000, step) - 20'000 * (step.copies - 1) * step.between;
        EXPECT_LT(taken, 1.004 * best) << step.with << " us and " << step.without;
        EXPECT_GT(program.changes(), 6u) << "it does not try again";
    }
}

/** So it is where only one of two processes tries, and the other one's steps last as long. */
TEST(StandbyWorth, ATrialThatFindsNothingIsShort) {
    constexpr unsigned kMost = 150;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
        Program program(seed);
        unsigned steps = 0;
        for (; steps < kMost && !program.is_trying(); ++steps) {
            program.run(1, {50, 50, 1, 0.3, 0, 0, 0});
        }
        ASSERT_TRUE(program.is_trying());
        for (steps = 0; steps < kMost && program.is_trying(); ++steps) {
            program.run(1, {50, 50, 1, 0.3, 0, 0, 0});
        }
        ASSERT_LT(steps, kMost);
    }
}

TEST(StandbyWorth, TriesAgainEverLessOften) {
    Program program(1);
    program.run(10'000, kPingPong);
    const unsigned early = program.changes();
    program.run(90'000, kPingPong);
    const unsigned later = program.changes();
    program.run(100'000, kPingPong);
    EXPECT_LT(program.changes() - later, early);
}

// ---------------------------------------------------------------- whatever the steps are like

TEST(StandbyWorth, NoiseDelaysItOnly) {
    const auto noisy = [](Program &program) { program.noise(0.2); };
    EXPECT_GE(with_kernel_after(50, kPingPong, noisy), kSeeds * 97 / 100);
    EXPECT_LE(with_kernel_after(150, kDeviceWait, noisy), kSeeds * 5 / 100);
    EXPECT_GE(with_kernel_after(150, {34, 40}, noisy), kSeeds * 95 / 100);
    const auto less = [](Program &program) { program.noise(0.05); };
    EXPECT_LE(with_kernel_after(150, kOverlap, less), kSeeds * 5 / 100);
}

TEST(StandbyWorth, OutliersDelayItOnly) {
    const auto interrupted = [](Program &program) { program.noise(0.03).outliers(50, 200); };
    EXPECT_GE(with_kernel_after(200, kPingPong, interrupted), kSeeds * 95 / 100);
    EXPECT_LE(with_kernel_after(200, kDeviceWait, interrupted), kSeeds * 5 / 100);
}

/** In each of several copies the kernel gains, and loses more once in a step: parts of steps would
 * praise it. */
TEST(StandbyWorth, MeasuresWholeSteps) {
    const auto noisy = [](Program &program) { program.noise(0.05); };
    for (unsigned copies : {2u, 3u, 5u, 8u, 16u, 64u}) {
        const double gained = 2.0 * (copies - 1);
        const Step losing = {60 + 1.3 * gained, 50, copies, 2.3, 2.0};
        const Step gaining = {60 + 0.5 * gained, 60, copies, 2.3, 2.0};
        EXPECT_LE(with_kernel_after(150, losing, noisy), kSeeds * 5 / 100) << copies;
        EXPECT_GE(with_kernel_after(150, copies > 3 ? gaining : Step{50, 60, copies}, noisy),
                  kSeeds * 95 / 100)
            << copies;
    }
}

/** The quicker way is found, and soon: trials that begin their votes anew would change the way much
 * more often. */
void expect_found_soon(const Step &step) {
    constexpr unsigned kPrograms = 50;
    unsigned right = 0;
    unsigned changes = 0;
    for (uint64_t seed = 0; seed < kPrograms; ++seed) {
        Program program(seed);
        program.noise(0.03).run(400, step);
        while (program.is_trying()) {  // later trials
            program.run(1, step);
        }
        const double gained = step.without - step.with + step.gain * (step.copies - 1);
        right += program.with() == (gained > 0) ? 1 : 0;
        changes += program.changes();
    }
    EXPECT_GE(right, kPrograms * 95 / 100)
        << step.copies << " copies, " << step.with << " us, " << step.waits << " waits";
    EXPECT_LT(changes, 12 * kPrograms)
        << step.copies << " copies, " << step.with << " us, " << step.waits << " waits";
}

/** Also after a change of the way, whose first step is not measured. */
TEST(StandbyWorth, GapsInABurstAreNoSteps) {
    for (unsigned copies : {64u, 80u, 96u}) {
        expect_found_soon({60, 60, copies, 3, 2, 1});
    }
}

/** The slots of a trial have more copies than any step may have. */
TEST(StandbyWorth, CountsTheStepsOfALongSlot) {
    for (unsigned waits : {0u, 1u}) {
        expect_found_soon({80, 60, 100, 0.3, 0, waits});
        expect_found_soon({40, 60, 100, 0.3, 0, waits});
    }
}

/** The longer gaps of before are forgotten as soon as without the pause. */
TEST(StandbyWorth, APauseBeforeShorterStepsDelaysNothing) {
    for (uint64_t seed = 0; seed < kSeeds / 4; ++seed) {
        Program program(seed);
        program.noise(0.03).run(300, {550, 500});
        program.pause(20'000);
        program.run(300, kPingPong);
        EXPECT_FALSE(program.is_trying()) << seed;
        EXPECT_TRUE(program.with()) << seed;
    }
}

// ---------------------------------------------------------------- several processes

/** Whose steps wait for each other. */
TEST(StandbyWorth, ProcessesDoNotHideTheirCostsFromEachOther) {
    for (unsigned processes : {2u, 8u}) {
        for (uint64_t seed = 0; seed < kSeeds / 4; ++seed) {
            Program losing(seed, processes);
            losing.noise(0.03).run(200, kDeviceWait);
            while (losing.any_is_trying()) {
                losing.run(1, kDeviceWait);
            }
            EXPECT_EQ(losing.with_kernel(), 0u) << processes << " processes, " << seed;
            Program gaining(seed, processes);
            gaining.noise(0.03).run(200, {34, 40});
            while (gaining.any_is_trying()) {
                gaining.run(1, {34, 40});
            }
            EXPECT_EQ(gaining.with_kernel(), processes) << seed;
        }
    }
}

/** A message there and one back: each process's kernel has half of the gain. */
TEST(StandbyWorth, BothOfAPingPongHaveIt) {
    for (uint64_t seed = 0; seed < kSeeds / 4; ++seed) {
        Program program(seed, 2, Program::sum);
        program.noise(0.1).run(100, {4, 8.5});
        while (program.any_is_trying()) {
            program.run(1, {4, 8.5});
        }
        EXPECT_EQ(program.with_kernel(), 2u) << seed;
    }
}

// ---------------------------------------------------------------- programs that change

TEST(StandbyWorth, SeesThatTheProgramHasChanged) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
        Program program(seed);
        program.noise(0.03).run(20'000, kPingPong);
        program.run(200, kDeviceWait);
        ASSERT_FALSE(program.is_trying()) << seed;
        ASSERT_FALSE(program.with()) << seed;
        program.run(300, kPingPong);
        ASSERT_FALSE(program.is_trying()) << seed;
        ASSERT_TRUE(program.with()) << seed;
    }
}

/** Messages that have been staged for a while are copied once from then on. */
TEST(StandbyWorth, SeesThatMessagesTakeAnotherWay) {
    unsigned with = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
        Program program(seed);
        program.noise(0.05).run(100, {30, 37, 2, 3, 0, 1});
        program.run(200, {25, 23.5, 1, 0.3, 0, 1});
        with += program.with() ? 1 : 0;
    }
    EXPECT_LE(with, kSeeds / 10);
}

/** The same time, but for what the kernel changes. */
TEST(StandbyWorth, SeesThatTheProgramWaitsOtherwise) {
    unsigned with = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
        Program program(seed);
        program.noise(0.03).run(20'000, {34, 40});
        program.run(300, {41, 36, 1, 0.3, 0, 1});
        with += program.with() && !program.is_trying() ? 1 : 0;
    }
    EXPECT_LE(with, kSeeds / 50);
}

TEST(StandbyWorth, LosesLittleWherePatternsAlternate) {
    Program program(3);
    double taken = 0;
    for (int i = 0; i < 50; ++i) {
        taken += program.run(1000, kPingPong) + program.run(1000, kDeviceWait);
    }
    EXPECT_LT(taken, 1.02 * 50 * 1000 * (kPingPong.with + kDeviceWait.without));
}

/** Passes of a program on a machine with other work: its steps take a third longer for a while, and
 * then not. */
TEST(StandbyWorth, LosesLittleWhereTimesVaryAllTheTime) {
    Program program(6);
    program.noise(0.05);
    double taken = 0;
    double best = 0;
    for (int pass = 0; pass < 60; ++pass) {
        for (int i = 0; i < 10; ++i) {
            const double slower = (pass * 7 + i * 3) % 4 == 0 ? 1.33 : 1;
            taken += program.run(100, {33 * slower, 30 * slower, 1, 0.3, 0, 1});
            best += 100 * 30 * slower;
        }
        program.pause(20'000);
    }
    EXPECT_LT(taken, 1.0015 * best);
}

TEST(StandbyWorth, BeginsAnewAfterAPause) {
    Program program(4);
    program.run(20'000, kOverlap);
    ASSERT_FALSE(program.with());
    program.pause(1e6);
    program.run(300, {56, 58, 2});
    EXPECT_TRUE(program.with());
}

/** A few messages between long pauses are no ground for a decision, and none for endless trials. */
TEST(StandbyWorth, PausesAmongFewCopiesEndATrial) {
    Program program(5);
    for (int i = 0; i < 500; ++i) {
        program.run(5, kPingPong);
        program.pause(20'000);
    }
    const unsigned changes = program.changes();
    for (int i = 0; i < 500; ++i) {
        program.run(5, kPingPong);
        program.pause(20'000);
    }
    EXPECT_LT(program.changes() - changes, 100u);
}

}  // namespace
