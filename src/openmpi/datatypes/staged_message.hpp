// SPDX-License-Identifier: BSD-3-Clause
// A message of a derived datatype, whose elements are in one block of memory while UCX transfers
// it.
#pragma once

#include "core/copy/row_views.hpp"
#include "core/pinning/device_buffer_pool.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"
#include "openmpi/datatypes/packed_layout.hpp"

#include <ucp/api/ucp.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace gpushm::openmpi {

/** Open MPI's callback at the end of a message. `info` is null for a send. May be empty. */
using Completion =
    std::function<void(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info)>;

/** Lives from create() until UCX has completed the message and submitted() was called, in either
 * order: UCX may complete a message before it returns the request. Static functions are thread
 * safe. An object belongs to one thread at a time. */
class StagedMessage {
public:
    /** Sizes of messages in bytes. */
    struct Limits {
        size_t device;  // the block is in device memory from this size on
        size_t rows;    // the same, where RowViews can stand for the block
    };

    /** The block is empty, and in device or page-locked host memory. Null: the message is not
     * staged, because it has no derived datatype or no device memory, because it is too long for a
     * block in host memory (PinnedBufferPool::kSmallBlockBytes; kBlockBytes where kernels would
     * wait for those of other programs), or there is no block. */
    static std::unique_ptr<StagedMessage> create(void *buffer, size_t count,
                                                 ucp_datatype_t datatype, const Limits &limits);
    ~StagedMessage();
    StagedMessage(const StagedMessage &) = delete;
    StagedMessage &operator=(const StagedMessage &) = delete;

    void *block() const { return host_block_ ? host_block_->address() : device_block_->address(); }
    bool is_in_host_memory() const { return host_block_.has_value(); }
    size_t bytes() const { return bytes_; }
    /** The elements; empty where they are no equal rows, or other components of UCX read the block.
     */
    std::optional<StridedRows> rows() const;
    const MemoryInfo &info() const { return info_; }  // of the elements
    void set_completion(Completion completion) { completion_ = std::move(completion); }

    /** Before a send: packs the elements into the block, or arranges that they are packed when the
     * block is read (RowViews). False, logged: the GPU failed. */
    bool pack() const;
    /** Before a receive: lets the data arrive in the elements directly, if that is possible. */
    void expect() const;
    /** After a receive of `length` bytes: unpacks them. False, logged: the GPU failed. */
    bool unpack(size_t length) const;

    /** UCX has returned `request`, which may also be null or an error. */
    static void submitted(std::unique_ptr<StagedMessage> message, ucs_status_ptr_t request);

    /** UCX has completed the message. Calls the completion, or frees the request if free_later()
     * was called. Deletes the object if submitted() was called. */
    void end(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info);

    /** Whether end() has still to be called for the message of `request`. */
    static bool is_under_way(const void *request);

    /** Open MPI frees `request`. False: the caller has to free it with UCX now. */
    static bool free_later(void *request);

private:
    StagedMessage(void *buffer, size_t bytes, bool in_host_memory,
                  std::shared_ptr<const PackedLayout> layout, const MemoryInfo &info);
    bool has_block() const;
    static std::unique_ptr<StagedMessage> make(void *buffer, size_t count, ucp_datatype_t datatype,
                                               const Limits &limits);
    bool copy(Way way, size_t length) const;
    bool is_for_kernel() const;
    bool copy_elements(Way way, size_t length) const;
    bool retire(void *request);

    void *const buffer_;
    const size_t bytes_;  // packed
    const std::shared_ptr<const PackedLayout> layout_;
    const MemoryInfo info_;                    // of the elements
    std::optional<DeviceBlock> device_block_;  // one of the two
    std::optional<HostBlock> host_block_;
    Completion completion_;

    // Protected by the lock of all messages.
    bool submitted_ = false;
    bool ended_ = false;
    bool freed_ = false;
};

}  // namespace gpushm::openmpi
