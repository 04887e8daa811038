// SPDX-License-Identifier: BSD-3-Clause
// Page residency: whether a CPU or a GPU should copy managed memory.
#include "core/copy/copy_any.hpp"
#include "core/memory/page_residency.hpp"

#include "test/gtest/core/gpu_support.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>

namespace gpushm {
namespace {

using namespace test;

constexpr size_t kPage = 4096;
constexpr size_t kBytes = 16 * kPage;

/** Pages of which none is touched yet. */
class Pages {
public:
    Pages()
        : data_(static_cast<unsigned char *>(
              mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
        madvise(data_, kBytes, MADV_NOHUGEPAGE);
    }
    ~Pages() { munmap(data_, kBytes); }
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;

    unsigned char *data() const { return data_; }
    void touch(size_t page) { data_[page * kPage] = 1; }

private:
    unsigned char *data_;
};

TEST(PageResidency, PagesAreThereWhenTheyAreTouched) {
    Pages pages;
    EXPECT_FALSE(resides_on_cpu(pages.data(), kBytes));
    EXPECT_FALSE(resides_on_cpu(pages.data(), 1));
    pages.touch(3);
    EXPECT_TRUE(resides_on_cpu(pages.data() + 3 * kPage, kPage));
    EXPECT_TRUE(resides_on_cpu(pages.data() + 3 * kPage + 100, 1));
    EXPECT_TRUE(resides_on_cpu(pages.data() + 4 * kPage - 1, 1));
    EXPECT_FALSE(resides_on_cpu(pages.data() + 3 * kPage, kPage + 1)) << "the next page counts";
    EXPECT_FALSE(resides_on_cpu(pages.data() + 3 * kPage - 1, 2)) << "and the one before";
    pages.touch(4);
    EXPECT_TRUE(resides_on_cpu(pages.data() + 3 * kPage, kPage + 1));
}

TEST(PageResidency, FirstAndLastPageAreAlwaysLookedAt) {
    Pages pages;
    for (size_t page = 0; page < kBytes / kPage; ++page) {
        pages.touch(page);
    }
    EXPECT_TRUE(resides_on_cpu(pages.data(), kBytes));
    for (const size_t page : {size_t{0}, kBytes / kPage - 1}) {
        madvise(pages.data() + page * kPage, kPage, MADV_DONTNEED);
        EXPECT_FALSE(resides_on_cpu(pages.data(), kBytes)) << page;
        EXPECT_TRUE(resides_on_cpu(pages.data() + kPage, kBytes - 2 * kPage));
        pages.touch(page);
    }
}

TEST(PageResidency, ForkedChildLooksAtItsOwnPages) {
    Pages pages;
    pages.touch(0);
    ASSERT_TRUE(resides_on_cpu(pages.data(), 1));
    Child child([&](const Channel &) {
        madvise(pages.data(), kPage, MADV_DONTNEED);  // of the child only
        const bool gone = !resides_on_cpu(pages.data(), 1);
        pages.touch(1);
        return gone && resides_on_cpu(pages.data() + kPage, 1) ? 0 : 1;
    });
    EXPECT_EQ(child.reap(), 0);
    EXPECT_TRUE(resides_on_cpu(pages.data(), 1));
}

class ManagedResidency : public GpuTest {
protected:
    bool gpu_copies() const {
        return gpushm::gpu_copies(query_memory(memory_.data()), memory_.data(), kBytes);
    }
    Buffer memory_{MemoryKind::managed, kBytes};
};

TEST_F(ManagedResidency, FollowsWhoTouchedItLast) {
    int concurrent = 0;
    cuda_.device_get_attribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0);
    memory_.fill(1);
    EXPECT_EQ(gpu_copies(), concurrent == 0);
    memory_.move_to_gpu();
    if (resides_on_cpu(memory_.data(), kBytes)) {
        GTEST_SKIP() << "this driver leaves managed memory on the CPU";
    }
    EXPECT_TRUE(gpu_copies());
    memory_.fill(2);
    EXPECT_EQ(gpu_copies(), concurrent == 0);
}

TEST_F(ManagedResidency, EitherCopyFindsTheBytes) {
    Buffer host(MemoryKind::host, kBytes);
    for (const bool on_gpu : {true, false}) {
        memory_.fill(10 + on_gpu);
        if (on_gpu) {
            memory_.move_to_gpu();
        }
        ASSERT_EQ(copy_any(host.data(), memory_.data(), kBytes), Status::ok);
        EXPECT_EQ(host.check(0, kBytes, 10 + on_gpu, 0), "");
        if (on_gpu) {
            memory_.move_to_gpu();
        }
        host.fill(20 + on_gpu);
        ASSERT_EQ(copy_any(memory_.data(), host.data(), kBytes), Status::ok);
        EXPECT_EQ(memory_.check(0, kBytes, 20 + on_gpu, 0), "");
    }
}

TEST_F(ManagedResidency, OtherKindsNeedNoLook) {
    Buffer device(MemoryKind::device, kBytes);
    Buffer pinned(MemoryKind::pinned, kBytes);
    Pages pages;
    EXPECT_TRUE(gpushm::gpu_copies(query_memory(device.data()), device.data(), kBytes));
    EXPECT_FALSE(gpushm::gpu_copies(query_memory(pinned.data()), pinned.data(), kBytes));
    EXPECT_FALSE(gpushm::gpu_copies(query_memory(pages.data()), pages.data(), kBytes));
}

}  // namespace
}  // namespace gpushm
