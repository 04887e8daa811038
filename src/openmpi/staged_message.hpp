// SPDX-License-Identifier: BSD-3-Clause
// A message whose elements are packed in one block of GPU memory while UCX has it.
#pragma once

#include "core/device_blocks.hpp"

#include <ucp/api/ucp.h>

#include <cstddef>
#include <memory>
#include <optional>

namespace gpushm::openmpi {

/** The callback that Open MPI wants to be called, of any of the forms that UCP has; or none. */
class Completion {
public:
    Completion() = default;
    static Completion of_send(ucp_send_nbx_callback_t callback, void *user_data);
    static Completion of_send(ucp_send_callback_t callback);
    static Completion of_receive(ucp_tag_recv_nbx_callback_t callback, void *user_data);
    static Completion of_receive(ucp_tag_recv_callback_t callback);

    void sent(void *request, ucs_status_t status) const;
    void received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info) const;

private:
    ucp_send_nbx_callback_t send_nbx_ = nullptr;
    ucp_send_callback_t send_nb_ = nullptr;
    ucp_tag_recv_nbx_callback_t recv_nbx_ = nullptr;
    ucp_tag_recv_callback_t recv_nb_ = nullptr;
    void *user_data_ = nullptr;
};

/** Lives from create() until UCX has completed it and submitted() was called, in either order: UCX may complete a
 *  message before it returns the request. Static functions are thread safe, a message belongs to one thread at a
 *  time. */
class StagedMessage {
public:
    /** Null when it is better off as it is: no derived datatype, short, not in device memory; or when there is no
     *  block. Nothing is in the block yet. */
    static std::unique_ptr<StagedMessage> create(void *buffer, size_t count,
                                                 ucp_datatype_t datatype);
    ~StagedMessage();
    StagedMessage(const StagedMessage &) = delete;
    StagedMessage &operator=(const StagedMessage &) = delete;

    void *block() const { return block_.address(); }
    size_t bytes() const { return bytes_; }
    void set_completion(const Completion &completion) { completion_ = completion; }

    /** From the elements into the block, and the first `length` bytes of it back; false when the GPU fails, logged. */
    bool pack() { return copy(Way::pack, bytes_); }
    bool unpack(size_t length) { return copy(Way::unpack, length); }

    /** UCX has returned `request`, which may be no request: null, or an error. */
    static void submitted(std::unique_ptr<StagedMessage> message, ucs_status_ptr_t request);

    /** UCX calls back: the message is over. Has `call` called with the completion, unless the request was freed
     *  meanwhile: then it is freed now. Ends the life of the message, if submitted() was called. */
    template <typename Call>
    void end(void *request, Call call) {
        const Completion completion = completion_;
        if (retire(request)) {
            call(completion);
        }
    }

    /** Open MPI does not wait for `request` any more. False: UCX may have it back now. */
    static bool free_later(void *request);

private:
    enum class Way { pack, unpack };

    StagedMessage(void *buffer, size_t count, const void *datatype, size_t bytes,
                  const MemoryInfo &info);
    bool copy(Way way, size_t length);
    bool retire(void *request);

    void *const buffer_;
    const size_t count_;
    const void *const datatype_;
    const size_t bytes_;  // packed
    const DeviceBlock block_;
    Completion completion_;

    // What submitted(), end() and free_later() tell each other, in the lock of all messages.
    bool submitted_ = false;
    bool ended_ = false;
    bool freed_ = false;
};

}  // namespace gpushm::openmpi
