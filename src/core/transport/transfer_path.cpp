// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/transfer_path.hpp"

#include "core/base/addresses.hpp"
#include "core/memory/page_residency.hpp"
#include "core/memory/memory_query.hpp"

#include <utility>

namespace gpushm {
namespace {

/** Whether the path is still to be tried. */
bool is_left(const PathQuery &query, TransferPath path) {
    return !query.failed || path > *query.failed;
}

/** `by_gpu`: whether a GPU copies it, where that is known. */
ChunkedTransfer describe_reply(const GetRequest &request, std::optional<bool> by_gpu) {
    const unsigned char *source = to_pointer(request.address);
    const MemoryInfo info = query_memory(source);
    return {request.transfer_id,
            true,
            nullptr,
            source,
            info,
            by_gpu ? *by_gpu : gpu_copies(info, source, request.length),
            request.length,
            0,
            RemoteMemory{0, 0, request.buffer},
            request.registration};
}

}  // namespace

PathChoice choose_path(PathParts &parts, const Operation &get, const PathQuery &query) {
    if (is_left(query, TransferPath::host_read) && query.is_new) {
        if (parts.host_reads.may_read(get.remote, get.local_on_gpu)) {
            return {HostReads::is_short(get.length) ? TransferPath::read_now
                                                    : TransferPath::host_read};
        }
    }
    if (is_left(query, TransferPath::direct)) {
        if (auto plan = parts.direct.plan_get(get, query.is_new)) {
            return {TransferPath::direct, std::move(plan)};
        }
    }
    const bool waits = query.is_new && get.local_on_gpu &&
                       parts.memory.is_worth_waiting(get.remote.buffer, get.length,
                                                     parts.receiver.has_ring(), query.awaited);
    return {waits ? TransferPath::wait : TransferPath::request};
}

PathChoice choose_path(PathParts &parts, const ChunkedTransfer &put, const PathQuery &query) {
    if (is_left(query, TransferPath::direct)) {
        if (auto plan = parts.direct.plan_put(put, query.is_new)) {
            return {TransferPath::direct, std::move(plan)};
        }
    }
    const bool waits = query.is_new && put.by_gpu &&
                       parts.memory.is_worth_waiting(put.remote.buffer, put.total,
                                                     parts.sender.is_ready(), query.awaited);
    return {waits ? TransferPath::wait : TransferPath::ring};
}

/** A copy that has begun is not used where a GPU of this process is quicker than the CPU that made
 * it, nor where this process copies for both within a GPU. */
PathChoice choose_path(PathParts &parts, const GetRequest &request) {
    PathChoice choice = {TransferPath::ring};
    choice.copied = parts.sender.find_copy(request);
    const bool by_gpu = choice.copied != nullptr && choice.copied->by_gpu;
    if (choice.copied != nullptr && !parts.direct.may_replace_copy(request, by_gpu)) {
        choice.path = TransferPath::copied;
        return choice;
    }
    choice.reply = describe_reply(
        request, choice.copied != nullptr ? std::optional<bool>(by_gpu) : std::nullopt);
    const bool for_both =
        by_gpu && parts.direct.copies_for_both(request.buffer, choice.reply->source_info,
                                               choice.reply->total);
    if (!by_gpu || for_both) {
        choice.plan = parts.direct.plan_push(*choice.reply, request);
    }
    choice.path_without_plan =
        choice.copied != nullptr && !for_both ? TransferPath::copied : TransferPath::ring;
    choice.path = choice.plan ? TransferPath::direct : choice.path_without_plan;
    return choice;
}

}  // namespace gpushm
