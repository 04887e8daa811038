// SPDX-License-Identifier: BSD-3-Clause
// What is remembered of memory, apart from the driver: AllocationTable and KnownHostPages.
#include "core/memory/allocation_table.hpp"
#include "core/memory/known_host_pages.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace gpushm {
namespace {

unsigned char *const kPlace = reinterpret_cast<unsigned char *>(uint64_t{1} << 46);

MemoryInfo allocation(size_t offset, size_t length, unsigned long long id) {
    MemoryInfo info;
    info.kind = MemoryKind::device;
    info.base = kPlace + offset;
    info.length = length;
    info.buffer_id = id;
    return info;
}

class AllocationTableTest : public testing::Test {
protected:
    void add(size_t offset, size_t length, unsigned long long id) {
        table_.add(allocation(offset, length, id), table_.generation());
    }
    /** The id of what lies there, 0 for nothing. */
    unsigned long long id_at(size_t offset) {
        MemoryInfo info;
        return table_.find(kPlace + offset, &info) ? info.buffer_id : 0;
    }

    // One for all tests: a thread remembers what it has seen by the table's generation alone.
    AllocationTable &table_ = AllocationTable::instance();
    void TearDown() override { table_.forget_all(); }
};

TEST_F(AllocationTableTest, FindsExactlyWhatWasAdded) {
    add(1000, 100, 1);
    add(1100, 50, 2);
    add(3000, 1, 3);
    for (int round = 0; round < 2; ++round) {  // from the table, then from the thread's own
        EXPECT_EQ(id_at(999), 0u);
        EXPECT_EQ(id_at(1000), 1u);
        EXPECT_EQ(id_at(1099), 1u);
        EXPECT_EQ(id_at(1100), 2u);
        EXPECT_EQ(id_at(1149), 2u);
        EXPECT_EQ(id_at(1150), 0u);
        EXPECT_EQ(id_at(3000), 3u);
        EXPECT_EQ(id_at(3001), 0u);
    }
}

TEST_F(AllocationTableTest, WhatIsForgottenIsNotFoundByAnyThread) {
    add(0, 100, 1);
    add(100, 100, 2);
    std::atomic<int> step{0};
    std::thread other([&] {
        EXPECT_EQ(id_at(50), 1u);
        step = 1;
        while (step != 2) {
        }
        EXPECT_EQ(id_at(50), 0u);
        EXPECT_EQ(id_at(150), 2u);
    });
    while (step != 1) {
    }
    const auto gone = table_.forget(kPlace + 99);
    step = 2;
    other.join();
    ASSERT_EQ(gone.size(), 1u);
    EXPECT_EQ(gone.begin()->second.buffer_id, 1u);
    EXPECT_TRUE(table_.forget(kPlace + 99).empty()) << "once is enough";
}

TEST_F(AllocationTableTest, ARangeTakesEverythingThatItTouches) {
    add(0, 100, 1);
    add(100, 100, 2);
    add(300, 100, 3);
    add(500, 100, 4);
    const auto gone = table_.forget(kPlace + 150, 151);
    ASSERT_EQ(gone.size(), 2u);
    EXPECT_EQ(gone.begin()->second.buffer_id, 2u);
    EXPECT_EQ(gone.rbegin()->second.buffer_id, 3u);
    EXPECT_EQ(id_at(0), 1u);
    EXPECT_EQ(id_at(599), 4u);
    EXPECT_EQ(table_.forget(kPlace, SIZE_MAX).size(), 2u);
}

TEST_F(AllocationTableTest, AnAnswerOlderThanSomeEndIsNotAdded) {
    const uint64_t before = table_.generation();
    table_.forget(kPlace);
    table_.add(allocation(0, 100, 1), before);
    EXPECT_EQ(id_at(0), 0u);
}

TEST_F(AllocationTableTest, ANewOneTakesThePlaceOfAnOlder) {
    add(0, 100, 1);
    add(200, 100, 2);
    add(50, 200, 3);
    EXPECT_EQ(id_at(0), 0u);
    EXPECT_EQ(id_at(50), 3u);
    EXPECT_EQ(id_at(260), 0u);
}

TEST_F(AllocationTableTest, ThreadsFindAddAndForget) {
    const auto work = [&](size_t offset, unsigned long long id) {
        for (int i = 0; i < 20000; ++i) {
            // The other thread's forgetting may void it.
            add(offset, 64, id + i);
            const unsigned long long found = id_at(offset + 63);
            ASSERT_TRUE(found == 0 || found == id + i) << found;
            table_.forget(kPlace + offset);
            ASSERT_EQ(id_at(offset), 0u);
        }
    };
    std::thread other(work, 4096, 1000000);
    work(0, 1);
    other.join();
}

TEST(KnownHostPages, NothingIsKeptBeforeItCanBeTrusted) {
    const auto pages = std::make_unique<KnownHostPages>();
    pages->add(kPlace);
    EXPECT_FALSE(pages->contains(kPlace));
    pages->trust();
    pages->add(kPlace);
    EXPECT_TRUE(pages->contains(kPlace));
}

TEST(KnownHostPages, APageIsKnownFromAnyByte) {
    const auto pages = std::make_unique<KnownHostPages>();
    pages->trust();
    pages->add(kPlace + 4096 + 17);
    EXPECT_FALSE(pages->contains(kPlace + 4095));
    EXPECT_TRUE(pages->contains(kPlace + 4096));
    EXPECT_TRUE(pages->contains(kPlace + 8191));
    EXPECT_FALSE(pages->contains(kPlace + 8192));
}

TEST(KnownHostPages, ForgetsEveryPageOfARangeAndNoOther) {
    constexpr size_t kPage = 4096;
    for (const size_t pages_gone : {1, 3, 2047, 2048, 2049, 100000}) {
        const auto pages = std::make_unique<KnownHostPages>();
        pages->trust();
        const size_t last = 10 + pages_gone - 1;
        const size_t seen[] = {9, 10, 10 + pages_gone / 2, last, last + 1};
        for (const size_t page : seen) {
            pages->add(kPlace + page * kPage);
        }
        const bool was_there[] = {pages->contains(kPlace + 9 * kPage),
                                  pages->contains(kPlace + (last + 1) * kPage)};
        pages->forget(kPlace + 10 * kPage + 100, (pages_gone - 1) * kPage);
        for (size_t page = 10; page < last; ++page) {
            ASSERT_FALSE(pages->contains(kPlace + page * kPage)) << pages_gone;
        }
        EXPECT_FALSE(pages->contains(kPlace + last * kPage) && pages_gone > 1) << pages_gone;
        EXPECT_EQ(pages->contains(kPlace + 9 * kPage), was_there[0]) << pages_gone;
        EXPECT_EQ(pages->contains(kPlace + (last + 1) * kPage), was_there[1]) << pages_gone;
    }
}

}  // namespace
}  // namespace gpushm
