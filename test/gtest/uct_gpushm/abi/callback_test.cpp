// SPDX-License-Identifier: BSD-3-Clause
// The functions that UCX calls let no exception pass, and requests wait without an allocation.
#include "uct_gpushm/pending_queue.hpp"
#include "uct_gpushm/ucx_callback.hpp"

#include <gtest/gtest.h>

#include <pthread.h>

#include <new>
#include <stdexcept>
#include <vector>

namespace abi_test {
namespace {

using gpushm::uct::PendingQueue;
using gpushm::uct::ucx_callback;

template <typename Result>
Result throwing(int which) {
    if (which == 0) {
        throw std::bad_alloc();
    }
    if (which == 1) {
        throw std::length_error("too long");
    }
    return Result();
}
void throwing_nothing(int *calls) {
    ++*calls;
    throw std::bad_alloc();
}

TEST(AbiCallback, says_that_there_is_no_memory) {
    for (const int which : {0, 1}) {
        EXPECT_EQ(ucx_callback<throwing<ucs_status_t>>(which), UCS_ERR_NO_MEMORY);
        EXPECT_EQ(ucx_callback<throwing<ssize_t>>(which), UCS_ERR_NO_MEMORY);
        EXPECT_EQ(ucx_callback<throwing<unsigned>>(which), 0u);
    }
    EXPECT_EQ(ucx_callback<throwing<ucs_status_t>>(2), UCS_OK);
    int calls = 0;
    ucx_callback<throwing_nothing>(&calls);
    EXPECT_EQ(calls, 1);
}

ucs_status_t waiting_for_ever(int) {
    for (;;) {
        pthread_testcancel();
    }
}

/** The end of a thread, which unwinds the stack like an exception. */
TEST(AbiCallback, the_end_of_a_thread_passes) {
    pthread_t thread;
    ASSERT_EQ(pthread_create(
                  &thread, nullptr,
                  [](void *) -> void * {
                      ucx_callback<waiting_for_ever>(0);
                      return nullptr;
                  },
                  nullptr),
              0);
    void *result = nullptr;
    ASSERT_EQ(pthread_cancel(thread), 0);
    ASSERT_EQ(pthread_join(thread, &result), 0);
    EXPECT_EQ(result, PTHREAD_CANCELED);
}

TEST(AbiCallback, requests_wait_in_order) {
    std::vector<uct_pending_req_t> requests(4);
    PendingQueue queue;
    EXPECT_TRUE(queue.empty());
    queue.push_back(&requests[0]);
    queue.push_back(&requests[1]);
    queue.fence();
    queue.push_back(&requests[2]);
    PendingQueue::Taken taken = queue.pop_front();
    EXPECT_EQ(taken.request, &requests[0]);
    EXPECT_FALSE(taken.fence);
    queue.push_front(taken);
    PendingQueue moved = std::move(queue);
    EXPECT_TRUE(queue.empty());  // NOLINT(bugprone-use-after-move): that is the test
    queue.push_back(&requests[3]);
    EXPECT_EQ(queue.pop_front().request, &requests[3]);
    EXPECT_TRUE(queue.empty());
    EXPECT_EQ(moved.pop_front().request, &requests[0]);
    taken = moved.pop_front();
    EXPECT_EQ(taken.request, &requests[1]);
    EXPECT_TRUE(taken.fence) << "also after others were put in front";
    moved.push_front(taken);
    EXPECT_TRUE(moved.pop_front().fence);
    EXPECT_EQ(moved.pop_front().request, &requests[2]);
    EXPECT_TRUE(moved.empty());
}

}  // namespace
}  // namespace abi_test
