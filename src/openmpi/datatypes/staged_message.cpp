// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/datatypes/staged_message.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/copy/row_packing.hpp"
#include "core/memory/buffer_key.hpp"
#include "core/memory/memory_query.hpp"
#include "core/standby/gpu_sharing.hpp"
#include "openmpi/binding/opal_datatype.hpp"
#include "openmpi/binding/ucp_functions.hpp"
#include "openmpi/datatypes/generic_datatypes.hpp"
#include "openmpi/settings/other_transports.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gpushm::openmpi {
namespace {

/** The messages in progress, by their requests. */
struct UnderWay {
    std::mutex mutex;
    std::unordered_map<void *, StagedMessage *> messages;
    std::atomic<size_t> living{0};
};

/** Never destroyed: MPI may be used while the process ends. */
UnderWay &under_way() {
    static UnderWay *const instance = new UnderWay;
    return *instance;
}

}  // namespace

// ---------------------------------------------------------------- the message

namespace {

/** Whether the elements are equal rows, and gpushm's copy engines are all that reads the block. */
bool can_be_rows(const PackedLayout &layout) {
    return layout.pieces.size() == 1 && !others_reach_gpu_memory();
}

/** Whether equal rows, which copy engines pack into host memory, would in device memory wait for
 * kernels of other programs. */
bool waits_for_kernels(const PackedLayout &layout, const MemoryInfo &info) {
    return layout.pieces.size() == 1 && layout.pieces.front().rows.count > 1 &&
           GpuSharing::instance().others_compute(info.device);
}

/** The messages that have a long block of page-locked host memory. Collective operations and lists
 * of pieces need others. */
std::atomic<size_t> long_host_blocks{0};
constexpr size_t kMostLongHostBlocks = PinnedBufferPool::kBlocks / 2;

bool is_long(size_t bytes) {
    return bytes > PinnedBufferPool::kSmallBlockBytes;
}

/** Whether such a message may have a block in host memory although it is long. */
bool has_host_block_for(size_t bytes) {
    return bytes <= PinnedBufferPool::kBlockBytes &&
           (!is_long(bytes) ||
            long_host_blocks.load(std::memory_order_relaxed) < kMostLongHostBlocks);
}

/** Whether peers may copy the rows themselves. */
bool can_be_shown(const PackedLayout &layout, const MemoryInfo &info) {
    return can_be_rows(layout) && make_buffer_key(info).can_be_mapped();
}

}  // namespace

std::unique_ptr<StagedMessage> StagedMessage::create(void *buffer, size_t count,
                                                     ucp_datatype_t datatype,
                                                     const Limits &limits) {
    return unless_short([&] { return make(buffer, count, datatype, limits); },
                        [] { return std::unique_ptr<StagedMessage>(); });
}

std::unique_ptr<StagedMessage> StagedMessage::make(void *buffer, size_t count,
                                                   ucp_datatype_t datatype, const Limits &limits) {
    GenericDatatypes &datatypes = GenericDatatypes::instance();
    const void *elements = datatypes.find(datatype);
    const size_t bytes = elements != nullptr ? OpalDatatype(elements).size() * count : 0;
    const bool is_short = !is_long(bytes);
    if (bytes == 0 || buffer == nullptr ||
        (!is_short && bytes < std::min(limits.device, limits.rows))) {
        return nullptr;
    }
    const MemoryInfo info =
        query_memory(static_cast<const char *>(buffer) + OpalDatatype(elements).true_lower_bound());
    if (info.kind != MemoryKind::device) {
        return nullptr;
    }
    std::shared_ptr<const PackedLayout> layout = datatypes.layout(datatype, count);
    const ptrdiff_t offset = static_cast<char *>(buffer) - static_cast<char *>(info.base);
    if (offset + layout->first_byte < 0 ||
        offset + layout->end > static_cast<ptrdiff_t>(info.length)) {
        return nullptr;  // it is in several kinds of memory
    }
    const auto stage = [&](bool in_host_memory) {
        std::unique_ptr<StagedMessage> message(
            new StagedMessage(buffer, bytes, in_host_memory, layout, info));
        return message->has_block() ? std::move(message) : nullptr;
    };
    const bool may_be_in_device_memory =
        bytes >= limits.device || (bytes >= limits.rows && can_be_shown(*layout, info));
    const bool may_be_in_host_memory = is_short && bytes < limits.device;
    const bool prefers_host_memory = has_host_block_for(bytes) && waits_for_kernels(*layout, info);
    std::unique_ptr<StagedMessage> message;
    for (const bool in_host_memory : {prefers_host_memory, !prefers_host_memory}) {
        const bool is_possible =
            in_host_memory ? may_be_in_host_memory || prefers_host_memory : may_be_in_device_memory;
        if (message == nullptr && is_possible) {
            message = stage(in_host_memory);
        }
    }
    return message;
}

StagedMessage::StagedMessage(void *buffer, size_t bytes, bool in_host_memory,
                             std::shared_ptr<const PackedLayout> layout, const MemoryInfo &info)
    : buffer_(buffer), bytes_(bytes), layout_(std::move(layout)), info_(info) {
    if (in_host_memory) {
        host_block_.emplace(bytes);
        long_host_blocks.fetch_add(is_long(bytes) ? 1 : 0, std::memory_order_relaxed);
    } else {
        device_block_.emplace(bytes, info);
    }
    under_way().living.fetch_add(1, std::memory_order_relaxed);
}

/** Copies of rows into pageable memory are slower than UCP's own packing. */
bool StagedMessage::has_block() const {
    return host_block_ ? host_block_->is_of_pool() : block() != nullptr;
}

StagedMessage::~StagedMessage() {
    if (is_in_host_memory()) {
        long_host_blocks.fetch_sub(is_long(bytes_) ? 1 : 0, std::memory_order_relaxed);
    } else {
        RowViews::instance().remove(block());
    }
    under_way().living.fetch_sub(1, std::memory_order_relaxed);
}

// ---------------------------------------------------------------- contents

std::optional<StridedRows> StagedMessage::rows() const {
    if (!can_be_rows(*layout_)) {
        return std::nullopt;
    }
    const CopyPiece &piece = layout_->pieces.front();
    const uint64_t address =
        reinterpret_cast<uintptr_t>(buffer_) + reinterpret_cast<uintptr_t>(piece.source);
    const bool together = piece.rows.count == 1;
    return StridedRows{address, piece.length, piece.rows.count,
                       together ? piece.length : piece.rows.source_pitch};
}

bool StagedMessage::pack() const {
    bool is_shown = false;
    as_possible([&] {
        const std::optional<StridedRows> elements = is_in_host_memory() ? std::nullopt : rows();
        if (elements && make_buffer_key(info_).can_be_mapped()) {
            add_row_source(block(), *elements);
            is_shown = true;
        }
    });
    return is_shown || copy(Way::pack, bytes_);
}

/** Without rows, the data arrive in the block. */
void StagedMessage::expect() const {
    as_possible([this] {
        const std::optional<StridedRows> elements = is_in_host_memory() ? std::nullopt : rows();
        if (elements) {
            RowViews::instance().add_destination(block(), *elements);
        }
    });
}

bool StagedMessage::unpack(size_t length) const {
    return (length == bytes_ && RowViews::instance().is_filled(block())) ||
           copy(Way::unpack, length);
}

namespace {

/** The rows of the first `length` packed bytes. */
std::vector<CopyPiece> beginning(const PackedLayout &layout, size_t length) {
    std::vector<CopyPiece> pieces;
    for (const CopyPiece &piece : layout.pieces) {
        const size_t begin = reinterpret_cast<uintptr_t>(piece.destination);
        const size_t left = begin < length ? length - begin : 0;
        CopyPiece whole = piece;
        whole.rows.count = std::min(piece.rows.count, left / piece.length);
        if (whole.rows.count > 0) {
            pieces.push_back(whole);
        }
        if (whole.rows.count < piece.rows.count && left % piece.length > 0) {
            pieces.push_back({static_cast<char *>(piece.destination) +
                                  whole.rows.count * piece.rows.destination_pitch,
                              static_cast<const char *>(piece.source) +
                                  whole.rows.count * piece.rows.source_pitch,
                              left % piece.length});
        }
    }
    return pieces;
}

}  // namespace

bool StagedMessage::copy(Way way, size_t length) const {
    return unless_short([=] { return copy_elements(way, length); },
                        [] {
                            GPUSHM_LOG(error,
                                       "cannot allocate host memory for the elements of a derived "
                                       "datatype: use smaller messages or raise the memory limit");
                            return false;
                        });
}

/** Whether one launch copies all pieces. Between a GPU and host memory, the copy engine is quicker
 * for a piece that is alone (doc/decisions/copy-many-pieces.md). */
bool StagedMessage::is_for_kernel() const {
    if (is_in_host_memory() && layout_->pieces.size() == 1) {
        return false;
    }
    return kernels_reach(*layout_, info_, buffer_, block(), bytes_);
}

bool StagedMessage::copy_elements(Way way, size_t length) const {
    const std::vector<CopyPiece> pieces = placed(
        length == bytes_ ? layout_->pieces : beginning(*layout_, length), buffer_, block(), way);
    return (is_for_kernel() ? copy_pieces_within(info_, pieces) : copy_pieces(pieces)) ==
           Status::ok;
}

// ---------------------------------------------------------------- life

void StagedMessage::submitted(std::unique_ptr<StagedMessage> message, ucs_status_ptr_t request) {
    const std::lock_guard<std::mutex> lock(under_way().mutex);
    message->submitted_ = true;
    if (UCS_PTR_IS_PTR(request) && !message->ended_) {
        StagedMessage *const living = message.release();  // until end()
        as_possible(
            [&] { under_way().messages[request] = living; });  // else it must not be freed early
    }
}

void StagedMessage::end(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info) {
    const Completion completion = std::move(completion_);
    if (retire(request) && completion) {
        completion(request, status, info);
    }
}

/** Whether Open MPI still waits for the request. */
bool StagedMessage::retire(void *request) {
    std::unique_ptr<StagedMessage> last;
    bool freed = false;
    {
        const std::lock_guard<std::mutex> lock(under_way().mutex);
        ended_ = true;
        freed = freed_;
        if (submitted_) {
            under_way().messages.erase(request);
            last.reset(this);
        }
    }
    if (freed) {
        ucp().request_free(request);
    }
    return !freed;
}

bool StagedMessage::is_under_way(const void *request) {
    if (under_way().living.load(std::memory_order_relaxed) == 0) {
        return false;
    }
    const std::lock_guard<std::mutex> lock(under_way().mutex);
    return under_way().messages.count(const_cast<void *>(request)) != 0;
}

bool StagedMessage::free_later(void *request) {
    if (under_way().living.load(std::memory_order_relaxed) == 0) {
        return false;
    }
    const std::lock_guard<std::mutex> lock(under_way().mutex);
    const auto found = under_way().messages.find(request);
    if (found == under_way().messages.end()) {
        return false;
    }
    found->second->freed_ = true;
    return true;
}

}  // namespace gpushm::openmpi
