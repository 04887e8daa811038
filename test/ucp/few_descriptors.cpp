// SPDX-License-Identifier: BSD-3-Clause
// A process that runs out of descriptors while peers connect: what it has goes on, what is new
// fails or takes another way, and works again when descriptors are free.
#include "check.hpp"
#include "session.hpp"
#include "transfers.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <vector>

namespace gpushm::ucp_test {
namespace {

constexpr size_t kSizes[] = {8, 9000, 300001};

/** While it lives, this process can open only so many files more. */
class FewDescriptors {
public:
    explicit FewDescriptors(size_t left) {
        getrlimit(RLIMIT_NOFILE, &limit_);
        rlimit lower = limit_;
        lower.rlim_cur = 256;  // soon reached
        setrlimit(RLIMIT_NOFILE, &lower);
        for (int fd = dup(0); fd >= 0; fd = dup(0)) {
            taken_.push_back(fd);
        }
        for (; left != 0; --left) {
            close(taken_.back());
            taken_.pop_back();
        }
    }
    ~FewDescriptors() {
        for (const int fd : taken_) {
            close(fd);
        }
        setrlimit(RLIMIT_NOFILE, &limit_);
    }
    FewDescriptors(const FewDescriptors &) = delete;
    FewDescriptors &operator=(const FewDescriptors &) = delete;

private:
    rlimit limit_ = {};
    std::vector<int> taken_;
};

/** A worker of each process, and the way between them, if there is one. */
class Pair {
public:
    Pair(Peer &peer, const Context &context)
        : peer_(peer),
          worker_(context),
          address_(peer.channel.exchange(worker_.address(), worker_.progress_function())) {}

    void connect() {
        endpoint_ = Endpoint::try_connect(worker_, address_, UCP_ERR_HANDLING_MODE_PEER);
    }

    /** A message of each size in both directions. Each send ends, and what was sent arrives. The
     * number of sends of both processes that failed. */
    size_t exchange() {
        const ucp_request_param_t parameters = plain_request();
        std::vector<std::unique_ptr<GuardedBuffer>> sources;
        std::vector<std::unique_ptr<GuardedBuffer>> destinations;
        std::vector<ucs_status_ptr_t> sends;
        std::vector<ucs_status_ptr_t> receives;
        for (size_t n = 0; n < std::size(kSizes); ++n) {
            sources.push_back(make_buffer(MemoryKind::host, kSizes[n] + 96));
            destinations.push_back(make_buffer(MemoryKind::host, kSizes[n] + 96));
            const Message in = message(n, 1 - peer_.role);
            destinations[n]->prepare_destination(in);
            receives.push_back(ucp_tag_recv_nbx(worker_.get(), destinations[n]->address(in),
                                                in.capacity, n, ~ucp_tag_t{0}, &parameters));
        }
        for (size_t n = 0; n < std::size(kSizes) && endpoint_; ++n) {
            const Message out = message(n, peer_.role);
            sources[n]->prepare_source(out);
            sends.push_back(ucp_tag_send_nbx(endpoint_->get(), sources[n]->address(out), out.size,
                                             n, &parameters));
        }
        std::string sent(std::size(kSizes), 'n');
        for (size_t n = 0; n < sends.size(); ++n) {
            sent[n] = worker_.wait(sends[n]) == UCS_OK ? 'y' : 'n';
        }
        const std::string theirs = peer_.channel.exchange(sent, worker_.progress_function());
        size_t failures = 0;
        for (size_t n = 0; n < receives.size(); ++n) {
            failures += (sent[n] == 'n') + (theirs[n] == 'n');
            if (theirs[n] == 'y') {
                require(worker_.wait(receives[n]), "receive of what was sent");
                check_received(*destinations[n], message(n, 1 - peer_.role));
            } else {
                ucp_request_cancel(worker_.get(), receives[n]);
                worker_.wait(receives[n]);
            }
        }
        peer_.channel.barrier(worker_.progress_function());
        return failures;
    }

private:
    static Message message(size_t n, int sender) {
        return nth_message(2 * n + static_cast<size_t>(sender), kSizes[n]);
    }

    Peer &peer_;
    Worker worker_;
    std::string address_;
    std::unique_ptr<Endpoint> endpoint_;
};

void expect_works(Pair &pair) {
    if (const size_t failures = pair.exchange()) {
        fail("%zu messages failed", failures);
    }
}

}  // namespace

void few_descriptors(Peer &peer) {
    const Context context({UCP_FEATURE_TAG, false});
    Pair before(peer, context);
    Pair meanwhile(peer, context);
    Pair afterwards(peer, context);
    set_activity("connected before");
    before.connect();
    expect_works(before);
    {
        std::unique_ptr<FewDescriptors> few;
        if (peer.role == 0) {
            few = std::make_unique<FewDescriptors>(peer.options.number("left", 0));
        }
        set_activity("connecting with few descriptors");
        meanwhile.connect();
        printf("process %d: %zu messages failed\n", peer.role, meanwhile.exchange());
        set_activity("connected before, few descriptors");
        expect_works(before);
    }
    set_activity("connecting with many descriptors");
    afterwards.connect();
    expect_works(afterwards);
}

}  // namespace gpushm::ucp_test
