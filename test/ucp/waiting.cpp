// SPDX-License-Identifier: BSD-3-Clause
// Messages that wait for room in the peer's mailbox, and what a program may do when one of them has
// gone.
#include "check.hpp"
#include "session.hpp"
#include "transfers.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gpushm::ucp_test {
namespace {

constexpr ucp_tag_t kTag = 7;
constexpr size_t kBytes = 200;     // eager
constexpr unsigned kAtOnce = 600;  // more than a mailbox holds
constexpr unsigned kMax = 2000;

/** Two workers of one process; the receiver makes no progress until it is told to. */
class Waiting {
public:
    explicit Waiting(const std::string &then)
        : then_(then),
          context_({UCP_FEATURE_TAG}),
          sender_(context_),
          receiver_(context_),
          endpoint_(sender_, receiver_.address(),
                    then == "force" ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE) {}

    void run() {
        send();
        for (double end = now_seconds() + 20; received_ == 0 && now_seconds() < end;) {
            receive();
            sender_.progress();
        }
        for (unsigned i = 0; i < kAtOnce; ++i) {
            send();
        }
        acts_ = true;
        for (double end = now_seconds() + 30; !is_over() && now_seconds() < end;) {
            sender_.progress();
            receive();
        }
        check();
    }

private:
    struct Message {
        Waiting *waiting;
        uint32_t words[kBytes / sizeof(uint32_t)];
        unsigned completions;
    };

    bool is_over() const {
        return completed_ == sent_ && (then_ == "force" || received_ == sent_) &&
               !is_under_way(other_);
    }
    static bool is_under_way(ucs_status_ptr_t request) {
        return UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS;
    }

    /** Whether it waits. */
    bool send() {
        messages_.push_back(std::make_unique<Message>());
        Message &message = *messages_.back();
        message = {this, {sent_}, 0};
        ++sent_;
        ucp_request_param_t parameters = {};
        parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        parameters.cb.send = [](void *request, ucs_status_t, void *argument) {
            static_cast<Message *>(argument)->waiting->on_sent(*static_cast<Message *>(argument));
            ucp_request_free(request);
        };
        parameters.user_data = &message;
        const ucs_status_ptr_t request =
            ucp_tag_send_nbx(endpoint_.get(), message.words, kBytes, kTag, &parameters);
        if (UCS_PTR_IS_ERR(request)) {
            require(UCS_PTR_STATUS(request), "send");
        } else if (request == nullptr) {
            ++message.completions;
            ++completed_;
        }
        return UCS_PTR_IS_PTR(request);
    }

    /** What is sent when there is room again must not pass what waits since there was none. */
    void send_beyond_room() {
        while (!send()) {
        }
        receive();
        send();
    }

    /** Of a message that had to wait. */
    void on_sent(Message &message) {
        ++message.completions;
        ++completed_;
        if (then_ == "send" && acts_ && sent_ < kMax) {
            send();
        }
        if (then_ == "fill" && acts_ && completed_ == sent_ && sent_ < kMax) {
            send_beyond_room();
        }
        if (then_ == "send" || then_ == "fill" || !acts_ || done_) {
            return;
        }
        done_ = true;
        ucp_request_param_t parameters = {};
        if (then_ == "flush") {
            other_ = ucp_ep_flush_nbx(endpoint_.get(), &parameters);
            if (other_ == nullptr) {
                fail("flushed when %u of %u messages had gone", completed_, sent_);
            }
            return;
        }
        parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        parameters.flags = then_ == "force" ? UCP_EP_CLOSE_FLAG_FORCE : 0;
        other_ = ucp_ep_close_nbx(endpoint_.release(), &parameters);
    }

    void receive() {
        receiver_.progress();
        if (receive_ == nullptr) {
            const ucp_request_param_t parameters = plain_request();
            receive_ = ucp_tag_recv_nbx(receiver_.get(), buffer_, kBytes, kTag, ~ucp_tag_t{0},
                                        &parameters);
        }
        if (is_under_way(receive_)) {
            return;
        }
        require(receiver_.wait(std::exchange(receive_, nullptr)), "receive");
        if (buffer_[0] != received_) {
            fail("message %u came where %u was due", buffer_[0], received_);
        }
        ++received_;
    }

    void check() {
        for (const std::unique_ptr<Message> &message : messages_) {
            if (message->completions != 1) {
                fail("a message has completed %u times", message->completions);
            }
        }
        if (then_ != "force" && received_ != sent_) {
            fail("%u of %u messages have arrived", received_, sent_);
        }
        if (UCS_PTR_IS_PTR(other_)) {
            ucp_request_free(other_);
        }
        if (UCS_PTR_IS_PTR(receive_)) {
            ucp_request_cancel(receiver_.get(), receive_);
            receiver_.wait(receive_);
        }
    }

    const std::string then_;
    Context context_;
    Worker sender_;
    Worker receiver_;
    Endpoint endpoint_;
    std::vector<std::unique_ptr<Message>> messages_;
    uint32_t buffer_[kBytes / sizeof(uint32_t)] = {};
    ucs_status_ptr_t receive_ = nullptr;
    ucs_status_ptr_t other_ = nullptr;
    unsigned sent_ = 0;
    unsigned completed_ = 0;
    unsigned received_ = 0;
    bool acts_ = false;
    bool done_ = false;
};

/** A message that the sender puts (UCX_RNDV_SCHEME=put_zcopy) when its turn comes among others that
 * wait: what says that all is there must not arrive before it is. */
class PutAmongWaiting {
public:
    void run() {
        send(source_, kTag);
        receive(target_, kTag);  // connects
        send(source_, kTag);
        const ucs_status_ptr_t put = post(target_, kTag);
        receiver_.progress();  // asks for the put
        send_until_waiting();
        sender_.progress();
        send_until_waiting();
        complete(put);
        for (std::vector<uint32_t> small(kSmallWords); small_sent_ != 0; --small_sent_) {
            receive(small, kTag + 1);
        }
        for (const ucs_status_ptr_t request : sends_) {
            require(sender_.wait(request), "send");
        }
    }

private:
    static constexpr unsigned kWaiting = 20;
    static constexpr size_t kSmallWords = kBytes / sizeof(uint32_t);
    static constexpr size_t kLargeWords = size_t{1} << 20;

    ucs_status_ptr_t send(const std::vector<uint32_t> &words, ucp_tag_t tag) {
        const ucp_request_param_t parameters = plain_request();
        sends_.push_back(ucp_tag_send_nbx(endpoint_.get(), words.data(),
                                          words.size() * sizeof(uint32_t), tag, &parameters));
        return sends_.back();
    }

    void send_until_waiting() {
        for (unsigned waiting = 0; waiting < kWaiting; ++small_sent_) {
            waiting += UCS_PTR_IS_PTR(send(small_, kTag + 1)) ? 1 : 0;
        }
    }

    ucs_status_ptr_t post(std::vector<uint32_t> &words, ucp_tag_t tag) {
        words.assign(words.size(), 0);
        const ucp_request_param_t parameters = plain_request();
        return ucp_tag_recv_nbx(receiver_.get(), words.data(), words.size() * sizeof(uint32_t), tag,
                                ~ucp_tag_t{0}, &parameters);
    }

    void complete(ucs_status_ptr_t request) {
        while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) {
            sender_.progress();
            receiver_.progress();
        }
        if (target_ != source_) {
            fail("a message has ended without its data");
        }
        require(receiver_.wait(request), "receive");
    }

    void receive(std::vector<uint32_t> &words, ucp_tag_t tag) { complete(post(words, tag)); }

    const Context context_{{UCP_FEATURE_TAG}};
    const Worker sender_{context_};
    const Worker receiver_{context_};
    const Endpoint endpoint_{sender_, receiver_.address()};
    const std::vector<uint32_t> source_ = std::vector<uint32_t>(kLargeWords, 0x600df00d);
    const std::vector<uint32_t> small_ = std::vector<uint32_t>(kSmallWords);
    std::vector<uint32_t> target_ = std::vector<uint32_t>(kLargeWords);
    std::vector<ucs_status_ptr_t> sends_;
    unsigned small_sent_ = 0;
};

}  // namespace

void waiting_messages(Peer &peer) {
    const std::string then = peer.options.text("then", "send");
    set_activity(("waiting messages, then " + then).c_str());
    Waiting(then).run();
}

void put_among_waiting(Peer &) {
    set_activity("a put among waiting messages");
    PutAmongWaiting().run();
}

}  // namespace gpushm::ucp_test
