// SPDX-License-Identifier: BSD-3-Clause
// One process of the test: connected to all others.
#pragma once

#include "../ucp/buffers.hpp"
#include "../ucp/session.hpp"
#include "meeting.hpp"

#include <memory>
#include <string>
#include <vector>

namespace gpushm::scale_test {

using ucp_test::MemoryKind;

class Member {
public:
    Member(size_t rank, size_t process_count);

    std::string address() const { return worker_.address(); }
    /** An endpoint to every other process of the meeting. */
    void connect(const Meeting &meeting);
    /** A message of `size` bytes to every other process and one from each; each byte is checked. */
    void exchange(size_t size, MemoryKind source, MemoryKind destination);
    /** The names of the transports of the way to a peer, as UCP prints them. */
    std::string transports_to(size_t peer) const;
    void disconnect();

    Progress progress();

private:
    void exchange_with(size_t first_distance, size_t last_distance, size_t size, MemoryKind source,
                       MemoryKind destination);
    size_t peer_at(size_t distance) const { return (rank_ + distance) % process_count_; }
    uint64_t tag_of(size_t sender) const { return exchanges_ << 16 | sender; }
    void wait(ucs_status_ptr_t request, const char *what);

    size_t rank_;
    size_t process_count_;
    ucp_test::Context context_;
    ucp_test::Worker worker_;
    std::vector<std::unique_ptr<ucp_test::Endpoint>> endpoints_;  // by rank; none to itself
    uint64_t exchanges_ = 0;  // since connect(); the same in all processes
};

}  // namespace gpushm::scale_test
