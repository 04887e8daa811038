// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/transfers.hpp"

#include "core/base/log.hpp"
#include "core/copy/reduced_arrivals.hpp"
#include "core/memory/page_residency.hpp"
#include "core/memory/memory_query.hpp"
#include "core/memory/registration_table.hpp"

#include <algorithm>
#include <utility>

namespace gpushm {

/** Nobody is told of the operation's end. The peer's data for it is dropped. */
struct Transfers::TakeBack {
    uint64_t id;
    void operator()(Transfers *transfers) const {
        transfers->host_reads_.drop_if([this](uint64_t read) { return read == id; });
        transfers->offered_reads_.drop_if([this](uint64_t read) { return read == id; });
        transfers->operations_.take_back(id);
    }
};

Transfers::Transfers(PeerChannel &channel, Operations &operations, WritePermissions &permissions,
                     PeerMemory &memory, RingSender &sender, RingReceiver &receiver)
    : channel_(channel),
      operations_(operations),
      sender_(sender),
      host_reads_(channel, operations, permissions),
      offered_reads_(channel, operations),
      memory_(memory),
      direct_(channel, operations, memory_),
      blocks_(channel, operations),
      parts_{host_reads_, direct_, memory_, sender, receiver} {}

// ---------------------------------------------------------------- start

Status Transfers::put(const void *local, size_t length, const RemoteMemory &remote,
                      const void *owner, const Completion &completion) {
    const Status status = operations_.check_startable();
    if (status != Status::ok || length == 0) {
        return status;
    }
    if (blocks_.takes(local, length, remote)) {
        return blocks_.put(local, length, remote, owner, completion);
    }
    // A CPU copies to host memory, in the order of the ring.
    const bool in_order = remote.buffer.is_host_memory();
    if (operations_.read().overlaps(remote.address, length) ||
        (!in_order && operations_.written().overlaps(remote.address, length)) ||
        blocks_.delay_put(remote.address, length) || !direct_.has_room(remote.registration)) {
        return Status::no_resource;
    }
    Operation operation = {owner, completion};
    operation.held = operations_.written().hold(remote.address, length);
    const uint64_t id = operations_.start(std::move(operation));
    Start start(this, {id});
    const MemoryInfo info = query_memory(local);
    memory_.begin_transfer();
    start_put({id, false, owner, static_cast<const unsigned char *>(local), info,
               gpu_copies(info, local, length), length, 0, remote},
              true);
    (void)start.release();
    return Status::in_progress;
}

Status Transfers::get(void *local, size_t length, const RemoteMemory &remote, const void *owner,
                      const Completion &completion) {
    const Status status = operations_.check_startable();
    if (status != Status::ok || length == 0) {
        return status;
    }
    if (blocks_.takes(local, length, remote)) {
        return blocks_.get(local, length, remote, owner, completion);
    }
    if (operations_.written().overlaps(remote.address, length) ||
        blocks_.delay_get(remote.address, length)) {
        return Status::no_resource;
    }
    Operation operation = {owner, completion};
    operation.local = static_cast<unsigned char *>(local);
    operation.local_info = query_memory(local);
    operation.local_on_gpu = gpu_copies(operation.local_info, local, length);
    operation.length = length;
    operation.remote = remote;
    memory_.begin_transfer();
    PathQuery query = {true, is_awaited(remote.buffer.buffer_id)};
    PathChoice choice = choose_path(parts_, operation, query);
    const bool may_copy = choice.path == TransferPath::direct && offered_reads_.claim(remote.offer);
    if (remote.offer.exists() && !may_copy) {
        return get_offered(std::move(operation));
    }
    if (may_copy) {
        operation.claimed = ClaimedRead::begin();
    }
    if (choice.path == TransferPath::read_now) {
        if (host_reads_.read_now(local, length, remote)) {
            return operations_.end_get_soon(owner, completion);
        }
        query.failed = TransferPath::host_read;
        choice = choose_path(parts_, operation, query);
    }
    operation.held = operations_.read().hold(remote.address, length);
    const uint64_t id = operations_.start(std::move(operation));
    Start start(this, {id});
    start_get(id, std::move(choice), query);
    (void)start.release();
    return Status::in_progress;
}

/** A message that its sender copies. */
Status Transfers::get_offered(Operation &&get) {
    if (offered_reads_.read_now(get.local, get.length, get.remote.offer)) {
        return operations_.end_get_soon(get.owner, get.completion);
    }
    const uint64_t id = operations_.start(std::move(get));
    Start start(this, {id});
    offered_reads_.start(id);
    (void)start.release();
    return Status::in_progress;
}

/** Whether the message of a get that this process does not copy itself is one that its sender
 * copies; else the data have to be asked for. */
bool Transfers::is_left_to_sender(uint64_t id) {
    Operation &operation = operations_.at(id);
    operation.claimed.end();
    const OfferUse &offer = operation.remote.offer;
    if (!offer.exists() || offered_reads_.ask(offer)) {
        return false;
    }
    offered_reads_.start(id);
    return true;
}

/** Along the path, or the next one when that cannot be taken. */
void Transfers::start_get(uint64_t id, PathChoice choice, PathQuery query) {
    const Operation &operation = operations_.at(id);
    if (choice.path == TransferPath::direct) {
        choice.plan->copy.transfer.id = id;
        if (!direct_.start(std::move(*choice.plan))) {
            query.failed = choice.path;
            choice = choose_path(parts_, operation, query);
        }
    }
    if (choice.path == TransferPath::direct || is_left_to_sender(id)) {
        return;
    }
    if (choice.path == TransferPath::host_read) {
        host_reads_.start(id);
    } else if (choice.path == TransferPath::wait) {
        held_.push_back({id, operation.remote.buffer.buffer_id, std::nullopt});
    } else if (choice.path == TransferPath::request) {
        parts_.receiver.gpu_ring().check();
        operations_.ask_peer(id, channel_.port.config().peer_mapping);
    }
}

void Transfers::start_put(const ChunkedTransfer &transfer, bool is_new) {
    const uint64_t buffer_id = transfer.remote.buffer.buffer_id;
    PathQuery query = {is_new, is_awaited(buffer_id)};
    PathChoice choice = choose_path(parts_, transfer, query);
    if (choice.path == TransferPath::direct && !direct_.start(std::move(*choice.plan))) {
        query.failed = choice.path;
        choice = choose_path(parts_, transfer, query);
    }
    if (choice.path == TransferPath::wait) {
        held_.push_back({transfer.id, buffer_id, transfer});
        operations_.count_part(transfer.id, 1);
    } else if (choice.path == TransferPath::ring) {
        sender_.add_put(transfer);
    }
}

// ---------------------------------------------------------------- transfers of the peer

void Transfers::receive_get_request(const GetRequest &request) {
    if (request.length == 0 || !RegistrationTable::instance().covers(
                                   request.registration, request.address, request.length)) {
        // Not an error of this process: after a forced close it is the usual end, and the peer says
        // more if it cares.
        GPUSHM_LOG(debug, "process %d asked for %llu bytes that are not registered for it: refused",
                   channel_.peer.pid, static_cast<unsigned long long>(request.length));
        channel_.send(CellKind::transfer_done, TransferDone{request.transfer_id, 1});
        return;
    }
    sender_.speculation().note_request(!request.buffer.cpu_copies());
    PathChoice choice = choose_path(parts_, request);
    if (choice.path == TransferPath::direct && !direct_.start(std::move(*choice.plan))) {
        choice.path = choice.path_without_plan;
    }
    if (choice.path == TransferPath::copied) {
        sender_.answer_by_copy(*choice.copied, request);
        return;
    }
    if (choice.copied != nullptr) {
        sender_.give_up_copy(*choice.copied);
    }
    channel_.activate();
    if (choice.path == TransferPath::ring) {
        sender_.add_reply(*choice.reply);
        sender_.issue_chunks();
    }
}

void Transfers::receive_done(const TransferDone &done) {
    const Operation *operation = operations_.find(done.transfer_id);
    if (operation == nullptr) {
        return;  // it was cancelled
    }
    const bool pushed = operation->shared.exists() && operation->arrived == 0;
    if (operation->is_message || operation->parts != 0 ||
        (operation->is_get() && done.failed == 0 && !pushed) ||
        (operation->awaits_blocks && done.failed == 0)) {
        channel_.give_up_broken_transfer();
        return;
    }
    if (done.failed != 0) {
        GPUSHM_LOG(
            error,
            "process %d could not complete a transfer: see its log, with UCX_LOG_LEVEL=debug",
            channel_.peer.pid);
    }
    const bool came_from_this_gpu =
        pushed && direct_.same_gpu(operation->remote.buffer, operation->local_info);
    operations_.end(done.transfer_id, done.failed != 0 ? Status::gpu_error : Status::ok);
    if (came_from_this_gpu && operations_.empty() && !sender_.busy() &&
        channel_.port.is_almost_idle()) {
        channel_.port.gpu_turn().let_peer_launch();
    }
}

// ---------------------------------------------------------------- waiting for mappings

bool Transfers::is_awaited(uint64_t buffer_id) const {
    return std::any_of(held_.begin(), held_.end(),
                       [&](const Held &held) { return held.buffer_id == buffer_id; });
}

/** The peer has answered. */
void Transfers::release_held(uint64_t buffer_id) {
    const auto first = std::stable_partition(
        held_.begin(), held_.end(), [&](const Held &held) { return held.buffer_id != buffer_id; });
    const std::vector<Held> ended(first, held_.end());
    held_.erase(first, held_.end());
    for (const Held &held : ended) {
        const Operation *operation = operations_.find(held.id);
        if (operation == nullptr) {
            continue;  // it was given up
        }
        if (held.put) {
            operations_.count_part(held.id, -1);
            start_put(*held.put, false);
        } else {
            const PathQuery query = {false};
            start_get(held.id, choose_path(parts_, *operation, query), query);
        }
    }
}

unsigned Transfers::open_handles() {
    const PeerMemory::Opened opened = memory_.open_handle(!held_.empty());
    if (opened.buffer_id != 0) {
        release_held(opened.buffer_id);
    }
    return opened.count;
}

// ---------------------------------------------------------------- progress and end

unsigned Transfers::progress() {
    std::list<DirectCopy> ended = direct_.take_ended();
    for (DirectCopy &copy : ended) {
        end_direct_copy(copy);
    }
    return static_cast<unsigned>(ended.size()) + host_reads_.progress() + offered_reads_.progress();
}

/** Whatever this calls may start copies or cancel some, also the operation of `copy`. */
void Transfers::end_direct_copy(DirectCopy &copy) {
    if (copy.purpose == DirectCopy::Purpose::push) {
        if (copy.status == Status::ok) {
            channel_.send(CellKind::transfer_done, TransferDone{copy.transfer.id, 0});
        } else if (!channel_.failed && !channel_.closed) {
            take_other_path(copy);
        }
        return;
    }
    Operation *operation = operations_.find(copy.transfer.id);
    if (operation == nullptr) {
        return;
    }
    operation->claimed.end();
    if (copy.arrival != 0 && copy.status != Status::ok) {
        // The kernel may still write: a sum over the numbers that another path brings.
        operations_.end(copy.transfer.id, Status::gpu_error);
        return;
    }
    const bool is_get = copy.purpose == DirectCopy::Purpose::get;
    if (!channel_.is_current(is_get ? operation->remote : copy.transfer.remote)) {
        copy.status = Status::gpu_error;
    }
    if (copy.status != Status::ok) {
        take_other_path(copy);
        return;
    }
    if (is_get && operation->remote.offer.exists() &&
        !offered_reads_.confirm(operation->remote.offer)) {
        offered_reads_.start(copy.transfer.id);
        return;
    }
    if (copy.filled != nullptr) {
        RowViews::instance().set_filled(copy.filled);
    }
    if (copy.arrival != 0) {
        ReducedArrivals::instance().set_reduced(copy.arrival);
    }
    operations_.end(copy.transfer.id, Status::ok);
}

/** A get that this process could not copy. */
void Transfers::ask_instead(uint64_t id) {
    if (is_left_to_sender(id)) {
        return;
    }
    parts_.receiver.gpu_ring().check();
    operations_.ask_peer(id, false);
}

/** A direct copy failed, or what it has read does not count: the data goes through the ring. */
void Transfers::take_other_path(DirectCopy &copy) {
    switch (copy.purpose) {
        case DirectCopy::Purpose::get:
            ask_instead(copy.transfer.id);
            break;
        case DirectCopy::Purpose::put:
            sender_.add_put(copy.transfer);
            break;
        case DirectCopy::Purpose::push:
            sender_.add_failed_reply(copy.transfer);
            break;
    }
}

void Transfers::cancel(Operations::Cancellation &cancellation) {
    direct_.cancel(cancellation);
    for (const Held &held : held_) {
        if (held.put && held.put->owner == cancellation.owner()) {
            cancellation.erase(held.id);
        }
    }
    host_reads_.drop_if([&](uint64_t id) { return cancellation.owns(id); });
    offered_reads_.drop_if([&](uint64_t id) { return cancellation.owns(id); });
}

void Transfers::forget_mappings() {
    memory_.forget();
    held_.clear();
}

}  // namespace gpushm
