// SPDX-License-Identifier: BSD-3-Clause
// libucm tells of host memory that goes away, before it does.
#include "uct_gpushm/abi/abi.hpp"

#include "test/gtest/uct_gpushm/abi/component.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <thread>

namespace gpushm {
namespace {

std::atomic<unsigned char *> watched{nullptr};
std::atomic<int> seen{0};

/** The first byte can still be read, for it is called before. */
void on_unmap(void *address, size_t length) {
    unsigned char *byte = watched;
    const auto *begin = static_cast<unsigned char *>(address);
    if (byte != nullptr && byte >= begin && byte < begin + length) {
        seen += *byte == 0x5a ? 1 : 1000;
    }
}

class Unmap : public testing::Test {
protected:
    static void SetUpTestSuite() {
        ASSERT_TRUE(abi_test::register_test_component());
        ASSERT_TRUE(abi::subscribe_unmap(on_unmap));
    }
    void watch(void *memory) {
        watched = static_cast<unsigned char *>(memory);
        *watched = 0x5a;
        seen = 0;
    }
    void TearDown() override { watched = nullptr; }
};

constexpr size_t kBytes = size_t{1} << 22;

void *map() {
    return mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

TEST_F(Unmap, IsToldBeforeMunmap) {
    void *memory = map();
    watch(memory);
    munmap(memory, kBytes);
    EXPECT_EQ(seen, 1);
}

TEST_F(Unmap, IsToldBeforeALargeAllocationIsFreed) {
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "the sanitizer's free() unmaps nothing";
#endif
    void *memory = malloc(size_t{64} << 20);
    watch(memory);
    free(memory);
    EXPECT_EQ(seen, 1);
}

TEST_F(Unmap, IsToldInWhateverThread) {
    void *memory = map();
    watch(memory);
    std::thread([memory] { munmap(memory, kBytes); }).join();
    EXPECT_EQ(seen, 1);
}

TEST_F(Unmap, IsToldBeforeAnotherMappingTakesThePlace) {
    void *memory = map();
    watch(memory);
    ASSERT_EQ(mmap(memory, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                   -1, 0),
              memory);
    EXPECT_EQ(seen, 1);
    watched = nullptr;
    munmap(memory, kBytes);
}

TEST_F(Unmap, MemoryThatStaysIsNotReported) {
    void *memory = map();
    void *other = map();
    watch(memory);
    munmap(other, kBytes);
    EXPECT_EQ(seen, 0);
    watched = nullptr;
    munmap(memory, kBytes);
}

}  // namespace
}  // namespace gpushm
