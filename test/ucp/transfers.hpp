// SPDX-License-Identifier: BSD-3-Clause
// The series of messages that the data tests send.
#pragma once

#include "buffers.hpp"
#include "scenarios.hpp"

#include <functional>
#include <map>

namespace gpushm::ucp_test {

/** One message of the series, as one of the two processes sees it. */
struct Transfer {
    size_t n;
    bool sending;  // else receiving
    Message message;
    GuardedBuffer &buffer;  // source or destination; the content is prepared
    void *address;          // of the message in it
};

/** Calls `body` for each pair of `--kinds` and each of `--sizes`, first with process 0 as the
 * sender, then with process 1. */
void for_each_transfer(Peer &peer, const char *sizes,
                       const std::function<void(const Transfer &)> &body);

}  // namespace gpushm::ucp_test
