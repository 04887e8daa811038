// SPDX-License-Identifier: BSD-3-Clause
// What the tests of the standby kernel share.
#pragma once

#include "../mpi/pattern.hpp"
#include "allocation.hpp"
#include "check.hpp"
#include "scenarios.hpp"
#include "session.hpp"
#include "watchdog.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

namespace gpushm::ucp_test {

constexpr size_t kKiB = size_t{1} << 10;

inline void use_own_device(const Peer &peer) {
    use_device(peer.options.has("same-device") ? 0 : peer.role % device_count());
}

using Bytes = std::vector<unsigned char>;

inline Bytes pattern(size_t size, uint64_t seed) {
    Bytes bytes(size);
    mpi_test::fill_pattern(bytes.data(), size, seed);
    return bytes;
}

/** Both processes number their messages alike. */
class Talk {
public:
    explicit Talk(Peer &peer, ucp_err_handling_mode_t mode = UCP_ERR_HANDLING_MODE_NONE)
        : peer_(peer), session_(peer.channel, UCP_FEATURE_TAG, mode) {}

    ucs_status_ptr_t start(int sender, void *memory, size_t size) {
        const ucp_request_param_t parameters = plain_request();
        const ucp_tag_t tag = ++n_ << 1 | static_cast<ucp_tag_t>(sender);
        return peer_.role == sender
                   ? ucp_tag_send_nbx(session_.ep(), memory, size, tag, &parameters)
                   : ucp_tag_recv_nbx(session_.worker().get(), memory, size, tag, ~ucp_tag_t{0},
                                      &parameters);
    }
    ucs_status_t wait(ucs_status_ptr_t request) { return session_.worker().wait(request); }
    void message(int sender, void *memory, size_t size) {
        require(wait(start(sender, memory, size)), "send or receive");
    }
    /** Small ones there and back, as many as bring the kernel, and while they go. */
    void ping_pong(void *memory, size_t size, size_t count = 20) {
        for (size_t i = 0; i < 2 * count; ++i) {
            message(static_cast<int>(i % 2), memory, size);
        }
    }
    void progress() { session_.worker().progress(); }
    Progress progress_function() { return session_.worker().progress_function(); }
    void barrier() { peer_.channel.barrier(progress_function()); }
    Session &session() { return session_; }

private:
    Peer &peer_;
    Session session_;
    ucp_tag_t n_ = 0;
};

/** A call that must not take long. */
class Stopwatch {
public:
    template <typename Call>
    void time(const char *what, Call call) {
        const Watchdog watchdog(what);
        const double start = now_seconds();
        call();
        const double took = now_seconds() - start;
        if (took > kMaxSeconds) {
            fail("%s took %.1f s", what, took);
        }
        double &worst = worst_[what];
        worst = std::max(worst, took);
    }
    void print(int role) const {
        for (const auto &[what, seconds] : worst_) {
            printf("process %d: %s took %.3f ms at most\n", role, what.c_str(), seconds * 1e3);
        }
    }

private:
    std::map<std::string, double> worst_;
};

}  // namespace gpushm::ucp_test
