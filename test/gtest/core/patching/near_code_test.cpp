// SPDX-License-Identifier: BSD-3-Clause
// NearCode finds room where other mappings take nearly all address space near a function, as those
// of the CUDA driver do.
#include "core/patching/near_code.hpp"

#include "core/base/memory_map.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

namespace gpushm {
namespace {

constexpr uintptr_t kReach = uintptr_t{1} << 31;

struct Space {
    uintptr_t begin;
    uintptr_t end;
};

int answer() {
    return 42;
}

uintptr_t address_of(const void *place) {
    return reinterpret_cast<uintptr_t>(place);
}

/** What is free from `begin` to `end`, but for what lies below the stack. */
std::vector<Space> free_space(uintptr_t begin, uintptr_t end) {
    std::vector<Space> gaps;
    uintptr_t last_end = 0;
    for_each_mapping([&](const MemoryMapping &mapping) {
        const Space gap = {std::max(begin, last_end), std::min(end, mapping.begin)};
        if (gap.begin < gap.end && strncmp(mapping.path, "[stack", 6) != 0) {
            gaps.push_back(gap);
        }
        last_end = mapping.end;
        return true;
    });
    return gaps;
}

/** Takes all of it. To read what is mapped takes memory that is free again afterwards. */
void fill(uintptr_t begin, uintptr_t end) {
    for (int round = 0; round < 3; ++round) {
        for (const Space &gap : free_space(begin, end)) {
            // The next round finds what could not be taken.
            static_cast<void>(
                mmap(reinterpret_cast<void *>(gap.begin), gap.end - gap.begin, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0));
        }
    }
}

/** Whether a jump that lies near `function` leads to answer(). */
bool can_jump_from_near(const void *function) {
    NearCode near_code;
    const NearCode::Room room = near_code.take(function, kFarJumpBytes);
    if (room.code == nullptr) {
        return false;
    }
    const uintptr_t place = address_of(room.code);
    if (std::max(place, address_of(function)) - std::min(place, address_of(function)) >= kReach) {
        return false;
    }
    write_far_jump(room.writable, reinterpret_cast<void *>(&answer));
    return reinterpret_cast<int (*)()>(room.code)() == 42;
}

/** In a child, whose address space is filled. */
testing::AssertionResult holds_in_child(const std::function<bool()> &condition) {
    const pid_t child = fork();
    if (child == 0) {
        _exit(condition() ? 0 : 1);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0
               ? testing::AssertionSuccess()
               : testing::AssertionFailure() << "status " << status;
}

#if defined(__x86_64__)

TEST(NearCode, LiesBetweenTheLibrariesAndTheStack) {
    const void *const function = reinterpret_cast<void *>(&fork);
    EXPECT_TRUE(holds_in_child([function] {
        const uintptr_t page = address_of(function) & ~uintptr_t{0xfff};
        fill(page - kReach, page + kReach);
        return can_jump_from_near(function);
    }));
}

TEST(NearCode, LiesAtTheBeginningOfAGapThatEndsFarAway) {
    EXPECT_TRUE(holds_in_child([] {
        constexpr uintptr_t kFar = 4 * kReach;
        void *const space =
            mmap(nullptr, 2 * kFar, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        auto *const function = static_cast<unsigned char *>(space) + kReach;
        const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        return space != MAP_FAILED && munmap(function + page, kFar) == 0 &&
               can_jump_from_near(function);
    }));
}

#endif

}  // namespace
}  // namespace gpushm
