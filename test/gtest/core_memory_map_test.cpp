// SPDX-License-Identifier: BSD-3-Clause
// for_each_mapping, guard_bytes.
#include "core/guard_mapping.hpp"
#include "core/malloc_arena.hpp"
#include "core/memory_map.hpp"

#include "core_mapping.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>

namespace gpushm {
namespace {

using test::Mapping;

constexpr size_t kPage = 4096;

struct Found {
    MemoryMapping mapping;
    std::string path;
    size_t guard;
};

/** The mapping that `address` lies in. */
std::optional<Found> find(const void *address) {
    std::optional<Found> found;
    EXPECT_TRUE(for_each_mapping([&](const MemoryMapping &mapping) {
        const auto wanted = reinterpret_cast<uintptr_t>(address);
        if (wanted < mapping.begin || wanted >= mapping.end) {
            return true;
        }
        found = {mapping, mapping.path, guard_bytes(mapping)};
        return false;
    }));
    return found;
}

/** With accessible pages on both sides, so that the kernel joins it with nothing. */
class Island {
public:
    explicit Island(size_t bytes, int protection) : around_(bytes + 2 * kPage) {
        EXPECT_EQ(mprotect(data(), bytes, protection), 0);
    }
    std::byte *data() const { return around_.data() + kPage; }

private:
    const Mapping around_;
};

TEST(MemoryMap, TellsAccess) {
    const Island readable(kPage, PROT_READ);
    const Island forbidden(kPage, PROT_NONE);
    const std::optional<Found> one = find(readable.data());
    const std::optional<Found> other = find(forbidden.data());
    ASSERT_TRUE(one && other);
    EXPECT_EQ(one->mapping.begin, reinterpret_cast<uintptr_t>(readable.data()));
    EXPECT_EQ(one->mapping.end, one->mapping.begin + kPage);
    EXPECT_TRUE(one->mapping.readable);
    EXPECT_FALSE(one->mapping.writable);
    EXPECT_FALSE(one->mapping.executable);
    EXPECT_TRUE(one->mapping.is_accessible());
    EXPECT_FALSE(other->mapping.is_accessible());
    EXPECT_EQ(one->path, "");
}

TEST(MemoryMap, TellsFiles) {
    const std::optional<Found> code = find(reinterpret_cast<const void *>(&strlen));
    ASSERT_TRUE(code);
    EXPECT_TRUE(code->mapping.executable);
    EXPECT_EQ(code->path.find('/'), 0u) << code->path;
    MemoryMapping device = {};
    device.path = "/dev/nvidia-uvm";
    EXPECT_TRUE(device.is_device());
    EXPECT_FALSE(device.is_file());
}

TEST(MemoryMap, GoesByAddressAndStops) {
    uintptr_t last = 0;
    size_t count = 0;
    for_each_mapping([&](const MemoryMapping &mapping) {
        EXPECT_GE(mapping.begin, last);
        EXPECT_GT(mapping.end, mapping.begin);
        last = mapping.end;
        return ++count < 5;
    });
    EXPECT_EQ(count, 5u);
}

TEST(GuardMapping, IsThePageBesideAStack) {
    const Island guard(kPage, PROT_NONE);
    EXPECT_EQ(find(guard.data())->guard, kPage);
}

TEST(GuardMapping, IsAGapOfAFile) {
    const size_t bytes = 2u << 20;
    const int file = memfd_create("library", 0);
    ASSERT_EQ(ftruncate(file, bytes), 0);
    const Mapping around(bytes + 2 * kPage);
    ASSERT_NE(mmap(around.data() + kPage, bytes, PROT_NONE, MAP_PRIVATE | MAP_FIXED, file, 0), MAP_FAILED);
    close(file);
    EXPECT_EQ(find(around.data() + kPage)->guard, bytes);
}

/** The driver reserves addresses so. */
TEST(GuardMapping, IsNothingLargeOfNobody) {
    const Island large(2u << 20, PROT_NONE);
    EXPECT_EQ(find(large.data())->guard, 0u);
}

TEST(GuardMapping, IsNotADevice) {
    MemoryMapping device = {};
    device.end = kPage;
    device.path = "/dev/nvidia0";
    EXPECT_EQ(guard_bytes(device), 0u);
}

TEST(GuardMapping, IsNothingAccessible) {
    const Island readable(kPage, PROT_READ);
    EXPECT_EQ(find(readable.data())->guard, 0u);
}

TEST(GuardMapping, IsWhatAHeapMayGrowInto) {
    if (!test::malloc_is_glibcs()) {
        GTEST_SKIP();
    }
    const auto data = test::allocate_in_thread(kPage);
    const uintptr_t heap = arena_heap_begin(reinterpret_cast<uintptr_t>(data.get()));
    size_t guarded = 0;
    for_each_mapping([&](const MemoryMapping &mapping) {
        if (mapping.begin > heap && mapping.begin < heap + kArenaHeapBytes) {
            EXPECT_LE(mapping.begin + guard_bytes(mapping), heap + kArenaHeapBytes);
            guarded += guard_bytes(mapping);
        }
        return true;
    });
    EXPECT_GE(guarded, kArenaHeapBytes / 2);
}

}  // namespace
}  // namespace gpushm
