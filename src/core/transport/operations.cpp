// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/operations.hpp"

#include "core/base/addresses.hpp"

#include <algorithm>

namespace gpushm {

uint64_t Operations::start(Operation &&operation) {
    operations_.emplace_hint(operations_.end(), next_id_, std::move(operation));
    channel_.activate();
    return next_id_++;
}

void Operations::take_back(uint64_t id) {
    const auto found = operations_.find(id);
    if (found != operations_.end()) {
        permissions_.close(found->second.shared, 1);
        operations_.erase(found);
    }
    permissions_.await();
}

void Operations::ask_peer(uint64_t id, bool may_be_pushed) {
    Operation &operation = at(id);
    GetRequest request = {};
    request.transfer_id = id;
    request.address = operation.remote.address;
    request.length = operation.length;
    request.registration = operation.remote.registration;
    request.speculative_copy = operation.remote.speculative_copy;
    request.buffer = make_buffer_key(operation.local_info, operation.local_on_gpu);
    if (may_be_pushed && request.buffer.can_be_mapped()) {
        permissions_.prepare();
        operation.shared = channel_.port.take_shared_transfer();
        request.shared = operation.shared;
    }
    if (request.shared.exists()) {
        channel_.port.shared_transfer(request.shared.index).open(request.shared.id, 1);
        request.destination = to_number(operation.local);
    }
    channel_.send(CellKind::get_request, request);
}

void Operations::count_part(uint64_t id, int change) {
    if (Operation *operation = find(id)) {
        operation->parts += static_cast<unsigned>(change);
    }
}

void Operations::end(uint64_t id, Status status) {
    const auto found = operations_.find(id);
    if (found == operations_.end()) {
        return;
    }
    if (found->second.local_on_gpu) {
        channel_.port.gpu_turn().note_arrival();
    }
    // UCP acknowledges the transfer, and the application often sends the next message.
    channel_.mailbox.expect_two_messages();
    const Completion completion = found->second.completion;
    permissions_.revoke(found->second.shared, 1);
    complete_joined(id, status);
    operations_.erase(id);
    completion.call(status);
    complete_flushes(Status::ok);
}

/** One by one: a completion may cancel the others. */
void Operations::complete_joined(uint64_t id, Status status) {
    for (Operation *operation = find(id);
         operation != nullptr && operation->joined_ended < operation->joined.size();
         operation = find(id)) {
        const Completion completion = operation->joined[operation->joined_ended++].completion;
        completion.call(status);
    }
}

Status Operations::end_get_soon(const void *owner, const Completion &completion) {
    ended_gets_.push_back({owner, completion});
    channel_.activate();
    return Status::in_progress;
}

unsigned Operations::complete_ended_gets() {
    unsigned count = 0;
    // A completion may start another get.
    for (size_t left = ended_gets_.size(); left != 0 && !ended_gets_.empty(); --left) {
        const Completion completion = ended_gets_.front().completion;
        ended_gets_.pop_front();
        completion.call(Status::ok);
        ++count;
    }
    return count;
}

Status Operations::flush(const void *owner, const Completion &completion) {
    if (channel_.failed) {
        return Status::peer_failed;
    }
    if (operations_.empty() && ended_gets_.empty()) {
        return Status::ok;
    }
    flushes_.push_back({next_id_ - 1, owner, completion});
    return Status::in_progress;
}

void Operations::complete_flushes(Status status) {
    while (!flushes_.empty() && ended_gets_.empty() &&
           all_ended_before(flushes_.front().last_id + 1)) {
        const Completion completion = flushes_.front().completion;
        flushes_.pop_front();
        completion.call(status);
    }
}

void Operations::close_permissions() {
    for (auto &[id, operation] : operations_) {
        permissions_.close(operation.shared, 1);
        operation.shared = SharedUse();
    }
}

void Operations::fail_all() {
    while (complete_ended_gets() != 0) {
    }
    // One by one: a completion may cancel others.
    while (!operations_.empty()) {
        const uint64_t id = operations_.begin()->first;
        const Completion completion = operations_.begin()->second.completion;
        complete_joined(id, Status::peer_failed);
        operations_.erase(id);
        completion.call(Status::peer_failed);
    }
    complete_flushes(Status::peer_failed);
}

// ---------------------------------------------------------------- cancellation

Operations::Cancellation::Cancellation(Operations &operations, const void *owner,
                                       std::vector<Completion> *ended)
    : operations_(operations), owner_(owner), ended_(ended) {
    if (ended_ != nullptr) {  // now, because nothing may fail later
        size_t joined = 0;
        for (const auto &[id, operation] : operations_.operations_) {
            joined += operation.joined.size();
        }
        ended_->reserve(ended_->size() + operations_.operations_.size() + joined +
                        operations_.ended_gets_.size() + operations_.flushes_.size());
    }
}

void Operations::Cancellation::hand_out(const Completion &completion) {
    if (ended_ != nullptr && completion.function != nullptr) {
        ended_->push_back(completion);
    }
}

bool Operations::Cancellation::owns(uint64_t id) const {
    const Operation *operation = operations_.find(id);
    return operation != nullptr && operation->owner == owner_;
}

void Operations::Cancellation::erase(uint64_t id) {
    const auto found = operations_.operations_.find(id);
    if (found != operations_.operations_.end()) {
        hand_out(found->second.completion);
        operations_.operations_.erase(found);
    }
}

void Operations::Cancellation::finish() {
    auto &all = operations_.operations_;
    for (auto entry = all.begin(); entry != all.end();) {
        Operation &operation = entry->second;
        if (operation.owner != owner_) {
            ++entry;
            continue;
        }
        hand_out(operation.completion);
        std::for_each(operation.joined.begin() + static_cast<ptrdiff_t>(operation.joined_ended),
                      operation.joined.end(),
                      [&](const JoinedTransfer &one) { hand_out(one.completion); });
        operation.joined.clear();
        operation.joined_ended = 0;
        if (operation.is_get()) {
            operations_.permissions_.close(operation.shared, 1);
            entry = all.erase(entry);
        } else {
            operation.owner = nullptr;
            operation.completion = Completion();
            ++entry;
        }
    }
    // Takes the owner's out of a queue.
    const auto take_out = [this](auto &queue) {
        const auto first = std::stable_partition(
            queue.begin(), queue.end(), [&](const auto &one) { return one.owner != owner_; });
        std::for_each(first, queue.end(), [&](const auto &one) { hand_out(one.completion); });
        queue.erase(first, queue.end());
    };
    take_out(operations_.ended_gets_);
    take_out(operations_.flushes_);
    operations_.permissions_.await();
    if (!operations_.flushes_.empty()) {
        operations_.channel_.activate();  // flushes of others may have nothing left to wait for
    }
}

}  // namespace gpushm
