// SPDX-License-Identifier: BSD-3-Clause
// Tasks run in a thread of their own, one after the other, in the process that they belong to.
#include "core/reclaim/deferred_free.hpp"

#include "test/gtest/core/support.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace gpushm {
namespace {

using namespace test;

/** Whether so many tasks that are added now run, in this order and not in this thread. */
bool tasks_run(int count) {
    static std::atomic<int> done;
    static std::atomic<bool> in_order;
    done = 0;
    in_order = true;
    const std::thread::id caller = std::this_thread::get_id();
    for (int i = 0; i < count; ++i) {
        run_in_background([i, caller] {
            in_order = in_order && done == i && std::this_thread::get_id() != caller;
            ++done;
        });
    }
    const Deadline deadline;
    while (done < count && !deadline.passed()) {
        std::this_thread::yield();
    }
    return done == count && in_order;
}

/** The first test in its process. */
TEST(Background, RunsTasksOfAChildWhoseParentHadNone) {
    Child child([](const Channel &) { return tasks_run(10) ? 0 : 1; });
    EXPECT_EQ(child.reap(), 0);
}

TEST(Background, RunsTasksInTheirOrder) {
    EXPECT_TRUE(tasks_run(100));
}

TEST(Background, RunsNoTasksInAChildWhoseParentHadSome) {
    ASSERT_TRUE(tasks_run(1)) << "its thread is there";
    std::atomic<bool> forked{false};
    run_in_background([&forked] {
        while (!forked) {
            std::this_thread::yield();
        }
    });
    std::atomic<int> left{0};
    run_in_background([&left] { ++left; });
    {
        Child child([&left](const Channel &) {
            run_in_background([&left] { ++left; });
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            return left == 0 ? 0 : 1;
        });
        EXPECT_EQ(child.reap(), 0);
    }
    forked = true;
    EXPECT_TRUE(tasks_run(1));
    EXPECT_EQ(left, 1);
}

}  // namespace
}  // namespace gpushm
