// SPDX-License-Identifier: BSD-3-Clause
// A message whose elements are packed in one block of GPU memory while UCX has it.
#pragma once

#include "core/copy/row_views.hpp"
#include "core/pinning/device_buffer_pool.hpp"
#include "openmpi/datatypes/generic_datatypes.hpp"

#include <ucp/api/ucp.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace gpushm::openmpi {

/** What Open MPI wants to be called when a message is over; `info` is null for a send. May be
 * empty. */
using Completion =
    std::function<void(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info)>;

/** Lives from create() until UCX has completed it and submitted() was called, in either order: UCX
 * may complete a message before it returns the request. Static functions are thread safe, a message
 * belongs to one thread at a time. */
class StagedMessage {
public:
    /** Null when it goes as it is: no derived datatype, fewer than `limit` bytes, not in device
     * memory; or when there is no block. Nothing is in the block yet. */
    static std::unique_ptr<StagedMessage> create(void *buffer, size_t count,
                                                 ucp_datatype_t datatype, size_t limit);
    ~StagedMessage();
    StagedMessage(const StagedMessage &) = delete;
    StagedMessage &operator=(const StagedMessage &) = delete;

    void *block() const { return block_.address(); }
    size_t bytes() const { return bytes_; }
    void set_completion(Completion completion) { completion_ = std::move(completion); }

    /** Before it is sent: the elements are in the block, or will be when it is read (RowViews).
     * False when the GPU fails, logged. */
    bool pack() const;
    /** Before it is received: where what arrives may go at once. */
    void expect() const;
    /** The first `length` bytes have arrived: they go where the elements are. False when the GPU
     * fails, logged. */
    bool unpack(size_t length) const;

    /** UCX has returned `request`, which may be no request: null, or an error. */
    static void submitted(std::unique_ptr<StagedMessage> message, ucs_status_ptr_t request);

    /** UCX calls back: the message is over. Calls the completion; or frees the request, if
     * free_later() was called. Ends the life of the message, if submitted() was called. */
    void end(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info);

    /** Whether the message of `request` is not over, as end() will say. */
    static bool is_under_way(const void *request);

    /** Open MPI does not wait for `request` any more. False: UCX may have it back now. */
    static bool free_later(void *request);

private:
    enum class Way { pack, unpack };

    StagedMessage(void *buffer, size_t bytes, std::shared_ptr<const PackedLayout> layout,
                  const MemoryInfo &info);
    std::optional<StridedRows> rows() const;
    static std::unique_ptr<StagedMessage> make(void *buffer, size_t count, ucp_datatype_t datatype,
                                               size_t limit);
    bool copy(Way way, size_t length) const;
    bool copy_elements(Way way, size_t length) const;
    bool retire(void *request);

    void *const buffer_;
    const size_t bytes_;  // packed
    const std::shared_ptr<const PackedLayout> layout_;
    const MemoryInfo info_;  // of the elements
    const DeviceBlock block_;
    Completion completion_;

    // What submitted(), end() and free_later() tell each other, in the lock of all messages.
    bool submitted_ = false;
    bool ended_ = false;
    bool freed_ = false;
};

}  // namespace gpushm::openmpi
