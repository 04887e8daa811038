// SPDX-License-Identifier: BSD-3-Clause
// Descriptors from one process to another: what is taken, and that nothing else is left.
#include "core/shm/descriptor_channel.hpp"

#include "core/base/abstract_address.hpp"

#include "test/gtest/core/support.hpp"
#include "test/gtest/core/wrapped_calls.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>
#include <vector>

namespace gpushm {
namespace {

using test::open_descriptors;

/** Sends descriptors together, as any process that knows the name may. */
void send_together(const Cookie &cookie, DescriptorTag tag, const std::vector<int> &descriptors) {
    const UniqueFd sender(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const size_t bytes = descriptors.size() * sizeof(int);
    std::vector<cmsghdr> control(CMSG_SPACE(bytes) / sizeof(cmsghdr) + 1);
    sockaddr_un address;
    iovec data = {&tag, sizeof(tag)};
    msghdr message = {};
    message.msg_name = &address;
    message.msg_namelen = abstract_address("descriptors", cookie, &address);
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr *part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(part), descriptors.data(), bytes);
    ASSERT_EQ(sendmsg(sender.get(), &message, MSG_DONTWAIT), static_cast<ssize_t>(sizeof(tag)));
}

class DescriptorChannel : public testing::Test {
protected:
    DescriptorChannel() {
        EXPECT_TRUE(receiver_.open(cookie_));
        before_ = open_descriptors();
    }

    const Cookie cookie_ = Cookie::random();
    DescriptorReceiver receiver_;
    /** Of which device file it is. */
    static dev_t device(const UniqueFd &descriptor) {
        struct stat found = {};
        EXPECT_EQ(fstat(descriptor.get(), &found), 0);
        return found.st_rdev;
    }

    const UniqueFd file_{open("/dev/null", O_RDWR | O_CLOEXEC)};
    size_t before_ = 0;
};

TEST_F(DescriptorChannel, TakesTheOneOfTheTag) {
    ASSERT_TRUE(send_descriptor(cookie_, {1, 7}, file_));
    {
        const UniqueFd received = receiver_.receive({1, 7});
        ASSERT_TRUE(received);
        EXPECT_EQ(device(received), device(file_));
        EXPECT_EQ(open_descriptors(), before_ + 1);
    }
    EXPECT_FALSE(receiver_.receive({1, 7})) << "there is no other";
    EXPECT_EQ(open_descriptors(), before_);
}

/** Two processes have sent; the one that has sent last says so first. */
TEST_F(DescriptorChannel, OfTwoOwnersWithOneNumberEachHasItsOwn) {
    const UniqueFd other(open("/dev/zero", O_RDWR | O_CLOEXEC));
    ASSERT_NE(device(other), device(file_));
    ASSERT_TRUE(send_descriptor(cookie_, {1, 7}, file_));
    ASSERT_TRUE(send_descriptor(cookie_, {2, 7}, other));
    const UniqueFd of_second = receiver_.receive({2, 7});
    ASSERT_TRUE(of_second);
    EXPECT_EQ(device(of_second), device(other));
    const UniqueFd of_first = receiver_.receive({1, 7});
    ASSERT_TRUE(of_first);
    EXPECT_EQ(device(of_first), device(file_));
}

TEST_F(DescriptorChannel, KeepsTheLastFewAndClosesThemAtTheEnd) {
    constexpr size_t kMax = DescriptorReceiver::kMaxKept;
    for (uint64_t id = 1; id <= 2 * kMax; ++id) {
        ASSERT_TRUE(send_descriptor(cookie_, {1, id}, file_));
        EXPECT_FALSE(receiver_.receive({2, id}));
        EXPECT_LE(open_descriptors(), before_ + kMax) << id;
    }
    EXPECT_FALSE(receiver_.receive({1, kMax})) << "one that had to go";
    EXPECT_TRUE(receiver_.receive({1, kMax + 1}));
    EXPECT_TRUE(receiver_.receive({1, 2 * kMax}));
    EXPECT_EQ(open_descriptors(), before_ + kMax - 2);
    receiver_ = DescriptorReceiver();
    EXPECT_EQ(open_descriptors(), before_ - 1) << "the socket is gone, too";
}

TEST_F(DescriptorChannel, OfSeveralThatComeTogetherNoneIsKept) {
    for (size_t count = 2; count < 10; ++count) {
        send_together(cookie_, {1, 7}, std::vector<int>(count, file_.get()));
        EXPECT_FALSE(receiver_.receive({1, 7})) << count;
        EXPECT_EQ(open_descriptors(), before_) << count;
    }
    send_together(cookie_, {1, 7}, {file_.get()});
    EXPECT_TRUE(receiver_.receive({1, 7}));
}

/** Processes of other users can send there as well. */
TEST_F(DescriptorChannel, ASenderThatNeverStopsHoldsUpNobody) {
    const test::EndlessDatagrams datagrams;
    EXPECT_FALSE(receiver_.receive({1, 2}));
    EXPECT_FALSE(datagrams.all_taken());
}

}  // namespace
}  // namespace gpushm
