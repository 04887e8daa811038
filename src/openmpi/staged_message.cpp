// SPDX-License-Identifier: BSD-3-Clause
// A message whose elements are packed in one block of GPU memory while UCX has it.
#include "openmpi/staged_message.hpp"

#include "core/copy_any.hpp"
#include "core/log.hpp"
#include "core/memory_info.hpp"
#include "openmpi/generic_datatypes.hpp"
#include "openmpi/opal_datatype.hpp"
#include "openmpi/type_walk.hpp"
#include "openmpi/ucp_functions.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gpushm::openmpi {
namespace {

// Below, two pieces that pass through host memory take less than two launches and a message between GPUs.
constexpr size_t kLeastBytes = 64u << 10;

/** Messages under way, by their requests. */
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

// ---------------------------------------------------------------- completions

Completion Completion::of_send(ucp_send_nbx_callback_t callback, void *user_data) {
    Completion completion;
    completion.send_nbx_ = callback;
    completion.user_data_ = user_data;
    return completion;
}

Completion Completion::of_send(ucp_send_callback_t callback) {
    Completion completion;
    completion.send_nb_ = callback;
    return completion;
}

Completion Completion::of_receive(ucp_tag_recv_nbx_callback_t callback, void *user_data) {
    Completion completion;
    completion.recv_nbx_ = callback;
    completion.user_data_ = user_data;
    return completion;
}

Completion Completion::of_receive(ucp_tag_recv_callback_t callback) {
    Completion completion;
    completion.recv_nb_ = callback;
    return completion;
}

void Completion::sent(void *request, ucs_status_t status) const {
    if (send_nbx_ != nullptr) {
        send_nbx_(request, status, user_data_);
    } else if (send_nb_ != nullptr) {
        send_nb_(request, status);
    }
}

void Completion::received(void *request, ucs_status_t status,
                          const ucp_tag_recv_info_t *info) const {
    if (recv_nbx_ != nullptr) {
        recv_nbx_(request, status, info, user_data_);
    } else if (recv_nb_ != nullptr) {
        ucp_tag_recv_info_t copy = *info;
        recv_nb_(request, status, &copy);
    }
}

// ---------------------------------------------------------------- the message

std::unique_ptr<StagedMessage> StagedMessage::create(void *buffer, size_t count,
                                                     ucp_datatype_t datatype) try {
    const void *elements = GenericDatatypes::instance().find(datatype);
    if (elements == nullptr || buffer == nullptr) {
        return nullptr;
    }
    const OpalDatatype type(elements);
    const size_t bytes = type.size() * count;
    if (bytes < kLeastBytes) {
        return nullptr;
    }
    const MemoryInfo info =
        query_memory(static_cast<const char *>(buffer) + type.true_lower_bound());
    if (info.kind != MemoryKind::device) {
        return nullptr;
    }
    std::unique_ptr<StagedMessage> message(
        new StagedMessage(buffer, count, elements, bytes, info));
    return message->block() != nullptr ? std::move(message) : nullptr;
} catch (const std::bad_alloc &) {
    return nullptr;
}

StagedMessage::StagedMessage(void *buffer, size_t count, const void *datatype, size_t bytes,
                             const MemoryInfo &info)
    : buffer_(buffer), count_(count), datatype_(datatype), bytes_(bytes), block_(bytes, info) {
    under_way().living.fetch_add(1, std::memory_order_relaxed);
}

StagedMessage::~StagedMessage() { under_way().living.fetch_sub(1, std::memory_order_relaxed); }

bool StagedMessage::copy(Way way, size_t length) try {
    std::vector<CopyPiece> pieces;
    auto *packed = static_cast<char *>(block_.address());
    BorrowedWalk walk;
    walk->start(datatype_, count_, buffer_);
    while (length > 0) {
        const Block block = walk->next(length);
        if (block.length == 0) {
            break;
        }
        pieces.push_back(way == Way::pack ? CopyPiece{packed, block.address, block.length}
                                          : CopyPiece{block.address, packed, block.length});
        packed += block.length;
        length -= block.length;
    }
    return copy_pieces(pieces) == Status::ok;
} catch (const std::bad_alloc &) {
    GPUSHM_LOG(error, "no host memory to go through the elements of a datatype");
    return false;
}

// ---------------------------------------------------------------- life

void StagedMessage::submitted(std::unique_ptr<StagedMessage> message, ucs_status_ptr_t request) {
    const std::lock_guard<std::mutex> lock(under_way().mutex);
    message->submitted_ = true;
    if (UCS_PTR_IS_PTR(request) && !message->ended_) {
        under_way().messages[request] = message.release();  // until end()
    }
}

/** Whether anybody waits for the request. */
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
