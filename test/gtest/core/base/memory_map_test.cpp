// SPDX-License-Identifier: BSD-3-Clause
#include "core/base/memory_map.hpp"

#include "test/gtest/core/shm/mapping.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>

namespace gpushm {
namespace {

using test::Mapping;

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

struct Found {
    MemoryMapping mapping;  // but for its path
    std::string path;
};

/** The mapping that `address` lies in. */
std::optional<Found> find(const void *address) {
    std::optional<Found> found;
    EXPECT_TRUE(for_each_mapping([&](const MemoryMapping &mapping) {
        const auto wanted = reinterpret_cast<uintptr_t>(address);
        if (wanted < mapping.begin || wanted >= mapping.end) {
            return true;
        }
        found = {mapping, mapping.path};
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
    EXPECT_FALSE(other->mapping.readable);
    EXPECT_EQ(one->path, "");
}

TEST(MemoryMap, TellsFiles) {
    const std::optional<Found> code = find(reinterpret_cast<const void *>(&strlen));
    ASSERT_TRUE(code);
    EXPECT_TRUE(code->mapping.readable);
    EXPECT_EQ(code->path.find('/'), 0u) << code->path;
    EXPECT_EQ(access(code->path.c_str(), R_OK), 0) << code->path;
    EXPECT_FALSE(code->mapping.shared);
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

}  // namespace
}  // namespace gpushm
