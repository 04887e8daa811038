// SPDX-License-Identifier: BSD-3-Clause
// available_memory: limits of the node and of cgroups, of both versions.
#include "core/base/available_memory.hpp"
#include "core/shm/segment.hpp"

#include "test/gtest/core/support.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

namespace gpushm {
namespace {

using namespace test;

namespace fs = std::filesystem;

constexpr size_t kMiB = size_t{1} << 20;

/** A folder with files as the kernel shows them. */
class Cgroups : public testing::Test {
protected:
    Cgroups() {
        char name[] = "/tmp/gpushm_cgroup_XXXXXX";
        root_ = mkdtemp(name);
    }
    ~Cgroups() override { fs::remove_all(root_); }

    void write(const std::string &path, const std::string &content) {
        fs::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << content;
    }
    size_t left(const std::string &membership) {
        write("cgroup", membership);
        return left_in_cgroups(root_ / "cgroup", root_);
    }

    fs::path root_;
};

TEST_F(Cgroups, NoneIsNoLimit) {
    EXPECT_EQ(left(""), SIZE_MAX);
    EXPECT_EQ(left("0::/\n"), SIZE_MAX);
    EXPECT_EQ(left("nonsense"), SIZE_MAX);
    EXPECT_EQ(left_in_cgroups("/nowhere/cgroup", "/nowhere"), SIZE_MAX);
}

TEST_F(Cgroups, SecondVersionCountsEachLevel) {
    write("job/memory.max", "1000000\n");
    write("job/memory.current", "300000\n");
    write("job/memory.stat", "anon 200000\nfile 100000\ninactive_file 50000\n");
    write("job/step/memory.max", "max\n");
    write("job/step/memory.current", "300000\n");
    EXPECT_EQ(left("0::/job/step\n"), 750000u);
    write("job/step/memory.max", "400000\n");
    EXPECT_EQ(left("0::/job/step\n"), 100000u);
    EXPECT_EQ(left("0::/job\n"), 750000u);
    EXPECT_EQ(left("0::/other\n"), SIZE_MAX);
}

TEST_F(Cgroups, FirstVersionHasAFolderOfItsOwn) {
    write("memory/job/memory.limit_in_bytes", "1000000\n");
    write("memory/job/memory.usage_in_bytes", "900000\n");
    write("memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 200000\n");
    EXPECT_EQ(left("5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n"), 300000u);
    EXPECT_EQ(left("4:cpu,memory:/job\n"), 300000u);
    EXPECT_EQ(left("4:memoryless:/job\n"), SIZE_MAX);
}

TEST_F(Cgroups, ContainerSeesItsOwnAsTheRoot) {
    write("memory.max", "5000\n");
    write("memory.current", "1000\n");
    EXPECT_EQ(left("0::/kubepods/pod1/container\n"), 4000u);
}

TEST_F(Cgroups, MoreUsedThanTheLimitLeavesNothing) {
    write("memory.max", "1000\n");
    write("memory.current", "2000\n");
    EXPECT_EQ(left("0::/\n"), 0u);
}

TEST(AvailableMemory, IsNoMoreThanTheNodeHas) {
    const size_t pages = static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
    EXPECT_GT(available_memory(), kMiB);
    EXPECT_LE(available_memory(), 2 * pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

/** A memory cgroup of its own; empty where this process may not make one. */
class OwnCgroup {
public:
    explicit OwnCgroup(size_t limit) {
        for (const auto &[folder, file] :
             {std::pair("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
              std::pair("/sys/fs/cgroup", "memory.max")}) {
            const fs::path path = fs::path(folder) / ("gpushm_test_" + std::to_string(getpid()));
            std::error_code error;
            if (fs::create_directory(path, error)) {
                std::ofstream(path / file) << limit << std::flush;
                std::ifstream check(path / file);
                size_t is = 0;
                if (check >> is && is == limit) {
                    path_ = path;
                    return;
                }
                fs::remove(path, error);
            }
        }
    }
    ~OwnCgroup() {
        std::error_code error;
        fs::remove(path_, error);
    }
    bool join() const {
        std::ofstream procs(path_ / "cgroup.procs");
        procs << getpid() << std::flush;
        return static_cast<bool>(procs);
    }
    explicit operator bool() const { return !path_.empty(); }

private:
    fs::path path_;
};

TEST(AvailableMemory, SegmentBeyondTheCgroupIsAnErrorWithOneLine) {
    const OwnCgroup cgroup(64 * kMiB);
    if (!cgroup) {
        GTEST_SKIP() << "this user may not make a memory cgroup";
    }
    Child child([&](const Channel &) {
        if (!cgroup.join()) {
            return 77;
        }
        const LogCapture log;
        return !Segment::create("gpushm-test", 100 * kMiB) && log.count("cannot reserve") == 1 &&
                       Segment::create("gpushm-test", 8 * kMiB)
                   ? 0
                   : 1;
    });
    const int status = child.reap();
    if (status == 77) {
        GTEST_SKIP() << "this process may not join another cgroup";
    }
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gpushm
